"""A forked process is refused its parent's pool at once, and its parent goes on."""

from __future__ import annotations

from interpool_testing import printed


def test_a_forked_process_is_refused_the_pool_and_the_parent_goes_on() -> None:
    said = printed("""
        import asyncio, faulthandler, os, sys, warnings
        import torch
        from interpool import InterpreterManager, InterpoolError

        warnings.simplefilter("ignore", DeprecationWarning)  # Python's own, of forks beside threads

        def refused(use):
            try:
                use()
            except InterpoolError as error:
                assert "Open the pool after the fork" in str(error), error
                return type(error).__name__
            return "not refused"

        async def ask():
            return (await model.call_async(torch.ones(2))).shape

        with InterpreterManager(1) as manager:
            instance = manager.all_instances()[0]
            model = manager.create_movable(torch.nn.Linear(2, 2))
            asyncio.run(ask())
            if child := os.fork():
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.run(ask()), flush=True)
            else:
                faulthandler.dump_traceback_later(60, exit=True)
                uses = [
                    lambda: asyncio.run(ask()),
                    lambda: model(torch.ones(2)),
                    model.acquire_session,
                    manager.acquire_session,
                    instance.acquire_session,
                    lambda: manager.create_movable(1),
                    lambda: manager.resize(2),
                    lambda: len(manager),
                    lambda: manager.max_size,
                    model.unload,
                    lambda: InterpreterManager(1),
                ]
                print([refused(use) for use in uses], flush=True)
        if not child:
            os._exit(4)
        """)
    assert said == f"{['SessionError'] * 11}\n4 torch.Size([2])\n"
