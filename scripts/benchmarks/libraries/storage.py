"""Computations of libraries that read, write, query and serialise. Each answers alike wherever it runs."""

from __future__ import annotations

import io
import os
from tempfile import TemporaryDirectory

from benchmarks.libraries.registry import Answer, computes, error_of


@computes("h5py")
def h5py() -> Answer:
    """Compressed datasets, attributes and a virtual file."""
    import h5py
    import numpy as np

    data = np.arange(6000).reshape(60, 100)
    with TemporaryDirectory() as there, h5py.File(f"{there}/a.h5", "w") as file:
        group = file.create_group("group")
        group.create_dataset("data", data=data, chunks=(10, 10), compression="gzip", shuffle=True)
        group.attrs["unit"] = "m"
        file.flush()
        read = file["group/data"][5:50:3, ::7]
        refused = str(error_of(KeyError, file.__getitem__, "missing"))
        names: list[str] = []
        file.visit(names.append)
    with h5py.File(io.BytesIO(), "w") as file:
        file["x"] = data[0]
        total = int(file["x"][:].sum())
    return [int(read.sum()), total, names, refused]


@computes("netCDF4")
def netcdf4() -> Answer:
    """A file with an unlimited dimension."""
    import netCDF4
    import numpy as np

    with TemporaryDirectory() as there:
        with netCDF4.Dataset(f"{there}/a.nc", "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 20)
            heights = file.createVariable("height", "f8", ("time", "x"), zlib=True)
            for time in range(10):
                heights[time] = np.arange(20) * time
        with netCDF4.Dataset(f"{there}/a.nc") as file:
            return [file["height"].shape, float(file["height"][:].sum()), file.data_model]


@computes("tables")
def tables() -> Answer:
    """A table with an indexed query."""
    import tables

    with TemporaryDirectory() as there, tables.open_file(f"{there}/a.h5", "w") as file:
        table = file.create_table("/", "rows", {"key": tables.Int64Col(), "value": tables.Float64Col()})
        table.append([(number % 13, number / 2) for number in range(500)])
        table.flush()
        table.cols.key.create_index()
        return [sum(row["value"] for row in table.where("key == 5")), table.nrows]


@computes("duckdb")
def duckdb() -> Answer:
    """SQL with joins over threads, and a file."""
    import duckdb

    with TemporaryDirectory() as there, duckdb.connect(f"{there}/a.db") as connection:
        connection.execute("create table t as select i % 17 as k, i * 0.5 as v from range(20000) r(i)")
        answer = connection.execute("select k, sum(v), count(*) from t group by k order by k").fetchall()
        connection.create_function("twice", lambda value: value * 2, ["BIGINT"], "BIGINT")
        twice = connection.execute("select sum(twice(k)) from t").fetchall()
        refused = str(error_of(duckdb.BinderException, connection.execute, "select nothing from t"))[:40]
    return [answer, twice, refused]


@computes("pysqlite3-binary")
def pysqlite3() -> Answer:
    """A database in a file, with a function in Python."""
    from pysqlite3 import dbapi2

    with TemporaryDirectory() as there:
        connection = dbapi2.connect(f"{there}/a.db")
        connection.create_function("twice", 1, lambda value: value * 2)
        with connection:
            connection.execute("create table t(k integer primary key, v real)")
            connection.executemany("insert into t values(?, ?)", [(i, i / 3) for i in range(500)])
        answer = connection.execute("select count(*), round(sum(twice(v)), 3) from t where k % 3").fetchall()
        connection.close()
    return [answer]


@computes("apsw")
def apsw() -> Answer:
    """A database in a file, full-text search, a virtual table."""
    import apsw

    with TemporaryDirectory() as there:
        connection = apsw.Connection(f"{there}/a.db")
        connection.execute("create virtual table t using fts5(words)")
        with connection:
            connection.executemany("insert into t values(?)", [(f"red fox number {i}",) for i in range(100)])
        answer = list(connection.execute("select count(*) from t where t match 'fox AND 7*'"))
        refused = str(error_of(apsw.SQLError, connection.execute, "nonsense"))
        connection.close()
    return [answer, refused]


@computes("lmdb")
def lmdb() -> Answer:
    """Transactions on a memory map."""
    import lmdb

    with TemporaryDirectory() as there, lmdb.open(there, map_size=1 << 20, max_dbs=2) as environment:
        with environment.begin(write=True) as transaction:
            for number in range(200):
                transaction.put(b"%05d" % number, b"x" * number)
        with environment.begin() as transaction, transaction.cursor() as cursor:
            return [sum(len(value) for _, value in cursor), environment.stat()["entries"]]


@computes("sqlalchemy")
def sqlalchemy() -> Answer:
    """The ORM over sqlite3, compiled parts included."""
    from sqlalchemy import Integer, String, create_engine, func, select
    from sqlalchemy.orm import Session, declarative_base, mapped_column

    base = declarative_base()
    columns = {"id": mapped_column(Integer, primary_key=True), "name": mapped_column(String)}
    row = type("Row", (base,), {"__tablename__": "rows", **columns})
    engine = create_engine("sqlite://")
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(row(name=f"name {number % 5}") for number in range(100))
        session.commit()
        found = session.execute(select(row.name, func.count()).group_by(row.name).order_by(row.name)).all()
    engine.dispose()
    return [[tuple(each) for each in found]]


@computes("psycopg[binary]")
def psycopg() -> Answer:
    """What libpq does without a server: escaping, adapting, a refused connection."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict

    refused = error_of(
        psycopg.OperationalError, psycopg.connect, "host=/nowhere dbname=none connect_timeout=2"
    )
    query = sql.SQL("select {} from t where n = {}").format(sql.Identifier("a b"), sql.Literal("it's"))
    return [
        query.as_string(None),
        sorted(conninfo_to_dict("host=a port=1").items()),
        "/nowhere" in str(refused),
        psycopg.pq.__impl__,
    ]


@computes("psycopg2-binary")
def psycopg2() -> Answer:
    """Adapting, and a refused connection."""
    import psycopg2
    from psycopg2.extensions import adapt

    where = "host=/nowhere dbname=none connect_timeout=2"
    refused = error_of(psycopg2.OperationalError, psycopg2.connect, where)
    return [str(adapt([1, 2.5, None])), "/nowhere" in str(refused)]


@computes("asyncpg")
def asyncpg() -> Answer:
    """A refused connection, from its own event loop."""
    import asyncio

    import asyncpg

    async def connect() -> None:
        await asyncpg.connect(host="/nowhere", database="none", user="none")

    refused = error_of(OSError, lambda: asyncio.run(connect()))
    return [type(refused).__name__, sorted(asyncpg.Record.__dict__)[:3]]


@computes("redis")
def redis() -> Answer:
    """A refused connection, and its protocol packed."""
    import redis
    from redis.backoff import NoBackoff
    from redis.connection import Connection
    from redis.retry import Retry

    client = redis.Redis(unix_socket_path="/nowhere", retry=Retry(NoBackoff(), 0))
    refused = error_of(redis.ConnectionError, client.ping)
    return [Connection().pack_command("SET", "a", 1.5), "/nowhere" in str(refused)]


@computes("pymongo")
def pymongo() -> Answer:
    """BSON there and back by its C extension."""
    import bson

    value = {
        "a": [1, 2.5, "text", None],
        "when": bson.datetime.datetime(2024, 1, 2),
        "id": bson.ObjectId("a" * 24),
    }
    data = bson.encode(value)
    return [data.hex(), repr(bson.decode(data)), bson.has_c()]


@computes("pyarrow")
def pyarrow() -> Answer:
    """Tables grouped, Parquet, pandas there and back."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import compute, parquet

    table = pa.table({"key": [f"k{i % 7}" for i in range(300)], "value": [i % 17 for i in range(300)]})
    grouped = table.group_by("key").aggregate([("value", "sum")]).sort_by("key")
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    file.seek(0)
    months = pd.DataFrame({"month": pd.period_range("2020-01", periods=3, freq="M")})
    text = io.BytesIO()
    months.to_parquet(text)
    text.seek(0)
    return [
        grouped.to_pylist(),
        parquet.read_table(file).equals(table),
        compute.utf8_upper(table["key"])[:3].to_pylist(),
        [str(month) for month in pd.read_parquet(text)["month"]],
    ]


@computes("rasterio")
def rasterio() -> Answer:
    """A grid written and read by GDAL, and warped."""
    import numpy as np
    import rasterio
    from rasterio.warp import transform

    grid = (np.add.outer(np.arange(40), np.arange(50)) % 251).astype("uint8")
    shape = {
        "width": 50,
        "height": 40,
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:25832",
        "compress": "deflate",
    }
    with TemporaryDirectory() as there:
        with rasterio.open(f"{there}/a.tif", "w", driver="GTiff", **shape) as file:
            file.write(grid, 1)
        with rasterio.open(f"{there}/a.tif") as file:
            same = bool((file.read(1) == grid).all())
        refused = error_of(rasterio.errors.RasterioIOError, rasterio.open, f"{there}/none.tif")
    return [
        same,
        [round(each[0], 5) for each in transform("EPSG:4326", "EPSG:25832", [9.0], [48.0])],
        str(refused).rpartition("/")[2],
    ]


@computes("pyogrio")
def pyogrio() -> Answer:
    """Shapes written and read by GDAL."""
    import numpy as np
    import pyogrio
    import shapely

    points = shapely.to_wkb(shapely.points([[i, i * 2] for i in range(20)]))
    with TemporaryDirectory() as there:
        path = f"{there}/a.gpkg"
        pyogrio.raw.write(
            path, points, [np.arange(20)], ["number"], geometry_type="Point", crs="EPSG:4326", driver="GPKG"
        )
        found = pyogrio.raw.read(path, where="number > 15")
        info = pyogrio.read_info(path)
    return [found[3][0].tolist(), info["features"], shapely.from_wkb(found[2][0]).wkt]


@computes("polars")
def polars() -> Answer:
    """A lazy query on its own threads, with a function in Python."""
    import polars as pl

    frame = pl.DataFrame({"key": [i % 11 for i in range(2000)], "value": [i * 0.5 for i in range(2000)]})
    grouped = (
        frame.lazy()
        .filter(pl.col("value") > 10)
        .group_by("key")
        .agg(pl.col("value").sum(), pl.len())
        .sort("key")
        .collect()
    )
    shouted = frame["key"].cast(pl.String).map_elements(lambda text: text * 2, return_dtype=pl.String)
    return [grouped.rows(), shouted[:5].to_list()]


@computes("orjson")
def orjson() -> Answer:
    """JSON there and back, numpy, a default function."""
    import numpy as np
    import orjson

    value = {"a": [1, 2.5, None, "ü"], "array": np.arange(5), "set": {1}}
    data = orjson.dumps(value, default=sorted, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS)
    return [data, orjson.loads(data), str(error_of(orjson.JSONDecodeError, orjson.loads, b"{"))]


@computes("ujson")
def ujson() -> Answer:
    """JSON there and back."""
    import ujson

    value = [{"a": i, "b": [i / 3, None, "ü" * (i % 5)]} for i in range(50)]
    return [ujson.loads(ujson.dumps(value)) == value, ujson.dumps(value[:3], sort_keys=True)]


@computes("simplejson")
def simplejson() -> Answer:
    """JSON with decimals, by its C extension."""
    from decimal import Decimal

    import simplejson

    text = simplejson.dumps([Decimal("1.10"), {"b": 1, "a": float(2)}], sort_keys=True)
    return [
        text,
        str(simplejson.loads("[1.10]", use_decimal=True)),
        simplejson.decoder.c_scanstring is not None,
    ]


@computes("python-rapidjson")
def rapidjson() -> Answer:
    """JSON validated against a schema."""
    import rapidjson

    validate = rapidjson.Validator('{"required": ["a"]}')
    refused = error_of(rapidjson.ValidationError, validate, '{"b": 1}')
    return [rapidjson.dumps({"a": [1, 2.5]}), str(refused)]


@computes("msgpack")
def msgpack() -> Answer:
    """Messages there and back, with a type of its own."""
    import msgpack

    value = [{"a": i, "b": [i / 3, None, b"x" * i]} for i in range(30)]
    data = msgpack.packb(value)
    own = msgpack.packb({1, 2}, default=lambda found: msgpack.ExtType(5, bytes(found)))
    return [len(data), msgpack.unpackb(data) == value, own.hex()]


@computes("cbor2")
def cbor2() -> Answer:
    """CBOR there and back."""
    import cbor2

    value = [{"a": i, "b": [i / 4, None, "ü"]} for i in range(30)]
    data = cbor2.dumps(value, canonical=True)
    return [data[:40].hex(), cbor2.loads(data) == value]


@computes("protobuf")
def protobuf() -> Answer:
    """A message of a type made at run time, there and back."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.internal import api_implementation

    file = descriptor_pb2.FileDescriptorProto(name="trial.proto", package="trial")
    point = file.message_type.add(name="Point")
    point.field.add(name="x", number=1, type=5, label=3)
    point.field.add(name="name", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName("trial.Point"))
    message = cls(x=range(50), name="name")
    again = cls.FromString(message.SerializeToString())
    return [again == message, json_format.MessageToDict(cls(x=[1, 2])), api_implementation.Type()]


@computes("pydantic")
def pydantic() -> Answer:
    """Validation, its errors, a validator in Python, and a schema."""
    import pydantic

    model = pydantic.create_model(
        "Trial",
        count=(int, ...),
        names=(list[str], []),
        __validators__={"checked": pydantic.field_validator("count")(lambda value: value * 2)},
    )
    refused = error_of(pydantic.ValidationError, model, count="many").errors(include_url=False)
    return [model(count="3", names=("a",)).model_dump(), repr(refused), model.model_json_schema()]


@computes("zstandard")
def zstandard() -> Answer:
    """Streams, and threads of its own."""
    import zstandard

    data = b"interpreters " * 5000
    squeezed = zstandard.ZstdCompressor(level=5, threads=2).compress(data)
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(squeezed))
    return [len(squeezed) < 2000, stream.read() == data]


@computes("lz4")
def lz4() -> Answer:
    """Frames there and back."""
    from lz4 import frame

    data = b"interpreters " * 5000
    return [frame.decompress(frame.compress(data)) == data, len(frame.compress(data))]


@computes("brotli")
def brotli() -> Answer:
    """There and back."""
    import brotli

    data = b"interpreters " * 500
    return [brotli.decompress(brotli.compress(data)) == data, brotli.compress(data).hex()]


@computes("blosc2")
def blosc2() -> Answer:
    """Arrays, by threads of its own."""
    import blosc2
    import numpy as np

    data = np.arange(100_000, dtype=np.int64)
    packed = blosc2.asarray(data, chunks=(20_000,))
    return [bool((packed[:] == data).all()), blosc2.decompress(blosc2.compress(bytes(1000))) == bytes(1000)]


@computes("cramjam")
def cramjam() -> Answer:
    """Snappy and gzip."""
    import cramjam

    data = b"interpreters " * 500
    return [bytes(cramjam.snappy.decompress(cramjam.snappy.compress(data))) == data, os.sep]
