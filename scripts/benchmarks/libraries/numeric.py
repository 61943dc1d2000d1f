"""Computations of numeric libraries, and of those that learn. Each answers alike wherever it runs."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.libraries.registry import Answer, computes, error_of


def table(rows: int = 300, columns: int = 6, seed: int = 7) -> tuple[Any, Any]:
    """Points and their classes."""
    import numpy as np

    points = np.random.default_rng(seed).standard_normal((rows, columns))
    return points, (points[:, 0] + points[:, 1] ** 2 > 0.7).astype(int)


@computes("numpy")
def numpy() -> Answer:
    """Linear algebra, random numbers, texts."""
    import numpy as np

    matrix = np.random.default_rng(3).standard_normal((32, 32))
    texts = np.array(["text", "longer text"])
    return [
        np.linalg.inv(matrix @ matrix.T + np.eye(32)).round(8).tolist(),
        np.fft.fft(matrix[0]).real.round(8).tolist(),
        np.char.upper(texts).tolist(),
        np.vectorize(lambda x: int(x * 3))(matrix[:2]).tolist(),
    ]


@computes("scipy")
def scipy() -> Answer:
    """Factorisations, sparse matrices, a root by a Python function."""
    import numpy as np
    from scipy import integrate, linalg, optimize, sparse, spatial

    matrix = np.random.default_rng(3).standard_normal((16, 16))
    symmetric = matrix @ matrix.T + np.eye(16)
    return [
        linalg.cho_solve(linalg.cho_factor(symmetric), matrix[0]).round(8).tolist(),
        sparse.linalg.spsolve(sparse.csc_matrix(symmetric), matrix[0]).round(8).tolist(),
        optimize.minimize(lambda x: ((x - 1) ** 2).sum(), np.zeros(3)).x.round(4).tolist(),
        round(integrate.quad(lambda x: x**2, 0, 1)[0], 8),
        len(spatial.ConvexHull(matrix[:, :3]).vertices),
    ]


@computes("pandas")
def pandas() -> Answer:
    """Groups, joins, time series, CSV."""
    import io

    import pandas as pd

    frame = pd.DataFrame(
        {
            "key": [f"k{i % 3}" for i in range(60)],
            "value": [i % 7 / 2 for i in range(60)],
            "when": pd.date_range("2024-01-01", periods=60, freq="7h", tz="Europe/Berlin"),
        }
    )
    read = pd.read_csv(io.StringIO(frame.to_csv(index=False)), parse_dates=["when"])
    daily = frame.set_index("when")["value"].resample("1D").sum()
    return [
        frame.groupby("key")["value"].agg(["sum", "std"]).round(6).to_dict(),
        [str(day) for day in daily.index[:4]],
        float(read["value"].sum()),
        frame["key"].str.upper().value_counts().sort_index().to_dict(),
    ]


@computes("numba")
def numba() -> Answer:
    """Functions compiled at each call anew, a ufunc, a parallel loop."""
    import numba
    import numpy as np

    @numba.njit
    def total(values: Any) -> Any:
        found = 0.0
        for value in values:
            found += value * 2
        return found

    @numba.vectorize(["float64(float64)"])
    def twice(value: float) -> float:
        return value * 2

    return [total(np.arange(1000.0)), twice(np.arange(5.0)).tolist(), _parallel()(np.arange(1000.0))]


@functools.cache
def _parallel() -> Any:
    import numba

    @numba.njit(parallel=True)
    def total(values: Any) -> Any:
        found = 0.0
        for i in numba.prange(len(values)):
            found += values[i]
        return found

    return total


@computes("numexpr")
def numexpr() -> Answer:
    """An expression, on threads of its own."""
    import numexpr
    import numpy as np

    names = {"a": np.arange(100_000.0)}
    total = numexpr.evaluate("sum(2*a + sin(a)**2)", names)
    return [float(total.round(4)), numexpr.evaluate("a > 7", names)[:10].tolist()]


@computes("bottleneck")
def bottleneck() -> Answer:
    """Moving windows."""
    import bottleneck
    import numpy as np

    a = np.arange(100.0)
    a[::7] = np.nan
    return [float(bottleneck.nansum(a)), bottleneck.move_mean(a, 5, min_count=2)[1:9].round(6).tolist()]


@computes("joblib")
def joblib() -> Answer:
    """Threads, and a cache on disk."""
    import math
    import tempfile

    import joblib

    squares = joblib.Parallel(n_jobs=2, prefer="threads")(
        joblib.delayed(math.factorial)(i) for i in range(20)
    )
    with tempfile.TemporaryDirectory() as there:
        cached = joblib.Memory(there, verbose=0).cache(math.factorial)
        return [squares, cached(5), cached(5), joblib.hash([1, 2, 3])]


@computes("threadpoolctl")
def threadpoolctl() -> Answer:
    """The libraries' threads counted and limited."""
    import numpy as np
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1):
        found = {each["internal_api"] for each in threadpoolctl.threadpool_info()}
        total = float(np.dot(np.arange(100.0), np.arange(100.0)))
    return ["openblas" in found, total]


@computes("scikit-learn")
def sklearn() -> Answer:
    """A forest, a support vector machine, clusters."""
    from sklearn.cluster import KMeans
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.svm import SVC

    points, classes = table()
    forest = RandomForestClassifier(8, random_state=1, n_jobs=2).fit(points, classes)
    boosted = HistGradientBoostingClassifier(max_iter=5, random_state=1).fit(points, classes)
    return [
        forest.predict_proba(points[:5]).round(6).tolist(),
        boosted.predict_proba(points[:5]).round(6).tolist(),
        SVC().fit(points, classes).decision_function(points[:5]).round(4).tolist(),
        round(float(KMeans(3, n_init=2, random_state=1).fit(points).inertia_), 4),
    ]


@computes("lightgbm")
def lightgbm() -> Answer:
    """Boosted trees, with a metric in Python."""
    import lightgbm

    points, classes = table()
    options = {"objective": "binary", "verbose": -1, "num_threads": 2, "deterministic": True, "seed": 1}
    seen: list[float] = []

    def metric(predicted: Any, _: Any) -> tuple[str, float, bool]:
        seen.append(round(float(predicted.mean()), 6))
        return "mean", seen[-1], True

    data = lightgbm.Dataset(points, classes)
    model = lightgbm.train(options, data, 6, valid_sets=[data], feval=metric)
    again = lightgbm.Booster(model_str=model.model_to_string())
    return [again.predict(points[:5]).round(6).tolist(), seen]


@computes("xgboost", "--no-deps", "xgboost")
def xgboost() -> Answer:
    """Boosted trees, with an objective in Python."""
    import xgboost

    points, classes = table()
    data = xgboost.DMatrix(points, classes)

    def objective(predicted: Any, given: Any) -> tuple[Any, Any]:
        return predicted - given.get_label(), predicted * 0 + 1

    model = xgboost.train({"max_depth": 3, "nthread": 2, "seed": 1}, data, 5, obj=objective)
    again = xgboost.Booster(model_file=model.save_raw("json"))
    refused = error_of(xgboost.core.XGBoostError, xgboost.train, {"booster": "none"}, data, 1)
    return [again.predict(data)[:5].round(5).tolist(), "none" in str(refused)]


@computes("catboost")
def catboost() -> Answer:
    """Boosted trees over categories."""
    import catboost

    points, classes = table()
    rows = [[*row, f"c{i % 3}"] for i, row in enumerate(points.tolist())]
    model = catboost.CatBoostClassifier(
        iterations=5, depth=3, verbose=False, random_seed=1, thread_count=2, allow_writing_files=False
    )
    model.fit(rows, classes, cat_features=[points.shape[1]])
    return [model.predict_proba(rows[:4]).round(6).tolist()]


@computes("faiss-cpu")
def faiss() -> Answer:
    """An inverted index, trained and searched."""
    import faiss
    import numpy as np

    points = np.random.default_rng(1).standard_normal((2000, 16)).astype("float32")
    index = faiss.index_factory(16, "IVF16,Flat")
    index.train(points)
    index.add(points)
    index.nprobe = 4
    _, neighbours = index.search(points[:4], 3)
    refused = error_of(AssertionError, index.search, points[:4, :5], 3)
    return [neighbours[:, 0].tolist(), index.ntotal, type(refused).__name__]


# An ONNX model: y = relu(x @ w), x of [2, 4], w the numbers from -8 to 7 as [4, 4].
NETWORK = (
    "CAg6mwEKEQoBeAoBdxIBaCIGTWF0TXVsCgwKAWgSAXkiBFJlbHUSAWcqSwgECAQQAUIBd0pAAAAAwQAA4MAAAMDAAACgwAAAgMAA"
    "AEDAAAAAwAAAgL8AAAAAAACAPwAAAEAAAEBAAACAQAAAoEAAAMBAAADgQFoTCgF4Eg4KDAgBEggKAggCCgIIBGITCgF5Eg4KDAgB"
    "EggKAggCCgIIBEIECgAQDQ=="
)


@computes("onnxruntime")
def onnxruntime() -> Answer:
    """A small network, on threads of its own."""
    import base64

    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(base64.b64decode(NETWORK), options)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    refused = error_of(ValueError, session.run, None, {"wrong": x})
    return [session.run(None, {"x": x})[0].tolist(), str(refused)[:40]]


@computes("statsmodels")
def statsmodels() -> Answer:
    """A regression, and a time series."""
    import numpy as np
    from statsmodels.api import OLS, add_constant
    from statsmodels.tsa.arima.model import ARIMA

    points, _ = table()
    fitted = OLS(points[:, 0], add_constant(points[:, 1:3])).fit()
    series = ARIMA(np.sin(np.arange(60.0) / 5), order=(1, 0, 0)).fit()
    return [fitted.params.round(8).tolist(), series.forecast(2).round(3).tolist()]


@computes("networkx")
def networkx() -> Answer:
    """Paths and ranks of a graph."""
    import networkx as nx

    graph = nx.karate_club_graph()
    ranks = nx.pagerank(graph)
    return [nx.shortest_path_length(graph, 0, 26), [round(ranks[i], 6) for i in range(5)]]


@computes("sympy")
def sympy() -> Answer:
    """An integral, and a solved equation."""
    import sympy

    x = sympy.Symbol("x")
    return [str(sympy.integrate(sympy.exp(-x) * sympy.sin(x), x)), str(sympy.solve(x**3 - 2 * x + 1, x))]


@computes("shapely")
def shapely() -> Answer:
    """Geometry, and a tree of it."""
    import shapely

    circles = shapely.buffer(shapely.points([[i, i % 3] for i in range(30)]), 1.0)
    union = shapely.union_all(circles)
    tree = shapely.STRtree(circles)
    refused = str(error_of(shapely.errors.GEOSException, shapely.from_wkt, "POLYGON(("))[:30]
    return [round(union.area, 6), tree.query(shapely.Point(3, 0)).tolist(), refused]


@computes("pyproj")
def pyproj() -> Answer:
    """Coordinates transformed, with PROJ's database."""
    import pyproj

    there = pyproj.Transformer.from_crs(4326, 25832, always_xy=True)
    geod = pyproj.Geod(ellps="WGS84")
    found = there.transform([9.0, 10.5], [48.0, 52.5])
    return [[[round(v, 3) for v in each] for each in found], round(geod.inv(0, 0, 10, 10)[2], 3)]


@computes("scikit-image", "scikit-image")
def skimage() -> Answer:
    """Edges, labels, a rotation."""
    import numpy as np
    from skimage import filters, measure, transform

    picture = (np.add.outer(np.arange(40), np.arange(40)) % 17).astype(float)
    return [
        round(float(filters.sobel(picture).sum()), 6),
        int(measure.label(picture > 8).max()),
        round(float(transform.rotate(picture / 17, 30).sum()), 4),
    ]


@computes("optree")
def optree() -> Answer:
    """Trees flattened, with a node type of their own."""
    import optree

    leaves, form = optree.tree_flatten({"a": [1, 2], "b": (3, None)})
    return [leaves, optree.tree_unflatten(form, [each * 2 for each in leaves])]
