"""Several models on one pool: none keeps another one waiting for long."""

from __future__ import annotations

from interpool.native import InterpreterManager


def test_stats_tell_what_each_model_has() -> None:
    with InterpreterManager(1) as manager:
        with manager.acquire_session(affinity="a"):
            stats = manager.stats()
            counts = {
                name: stats["models"]["a"][name] for name in ("running", "waiting", "share", "leased_s")
            }
            assert counts == {"running": 1, "waiting": 0, "share": None, "leased_s": 0.0}
            assert (stats["interpreters"][0]["affinities"], stats["interpreters"][0]["idle"]) == (
                ["a"],
                [0.0],
            )
        stats = manager.stats()
        assert stats["models"]["a"]["running"] == 0
        assert stats["models"]["a"]["leased_s"] > 0
        manager.forget("a", stats["interpreters"][0]["interpreter"] + 1)
        assert manager.stats()["interpreters"][0]["affinities"] == ["a"]
        manager.forget("a", stats["interpreters"][0]["interpreter"])
        assert manager.stats()["interpreters"][0]["affinities"] == []
        manager.forget("a")
        assert manager.stats()["models"] == {}


def test_an_instance_is_leased_for_a_model() -> None:
    with InterpreterManager(1) as manager:
        (instance,) = manager.all_instances()
        with instance.acquire_session(timeout=60, affinity="model"):
            assert manager.stats()["models"]["model"]["running"] == 1
