"""The contract of backends, checked by one class for every backend, and what only the pool can show."""

import copy
import importlib.util
import itertools
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from deeppruning.backends import InProcessBackend, PoolBackend, RayBackend, limits, pool, workers
from deeppruning.backends.limits import TimeLimit
from deeppruning.backends.registry import BACKENDS, Wanted
from deeppruning.errors import DeepPruningError, InputError
from processes import alive, eventually
from ray_cluster import connected

# Every backend that is registered is tested. Each has room for two items at a time, or for one.
PLACES = {
    "in process": ("local", 1),
    "pool": ("local", 2),
    **{name: (name, None) for name in BACKENDS if name != "local"},  # Ray: on the cluster joined already
}


def maker(name):
    kind, workers = PLACES[name]
    return lambda **options: BACKENDS[kind].make(Wanted(threads=1, workers=workers, **options))


def make_context():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(32, 3, 16, 16, generator=generator)
    model = torch.nn.Conv2d(3, 4, 3)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.1)
    return {
        "images": images,
        "channels last": images.to(memory_format=torch.channels_last),
        "second": images[1],
        "model": model,
        "empty": torch.empty(0, 5),
    }


@pytest.fixture(scope="module")
def ray_cluster():
    with connected("one", "two") as cluster:
        yield cluster


@pytest.fixture(
    scope="module",
    # On a cluster all of it takes a minute; test_ray.py has what is most likely to break there.
    params=[pytest.param(n, marks=[pytest.mark.ray, pytest.mark.slow] if n == "ray" else []) for n in PLACES],
)
def make_backend(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return maker(request.param)


@pytest.fixture(scope="module")
def make_remote(make_backend):
    """A backend whose workers are processes of their own: what this one cannot survive is tried there."""
    if isinstance(make_backend(), InProcessBackend):
        pytest.skip("items run in this process")
    return make_backend


@pytest.fixture(scope="module")
def session(make_backend):
    """One session for many tests, because starting workers is slow: items are functions of the context."""
    with make_backend().open(lambda context, item: item(context), make_context()) as session:
        yield session


def collect(session, items):
    """Outcomes by key; a key that comes twice is an error."""
    found = list(session.map(items))
    assert len({outcome.key for outcome in found}) == len(found)
    return {outcome.key: outcome for outcome in found}


def run(backend, function, context, items):
    with backend.open(function, context) as session:
        return collect(session, items)


class TestContract:
    """What every backend promises."""

    def test_every_key_gets_its_value(self, session):
        found = collect(session, [(f"k{i}", lambda _, i=i: 3 * i) for i in range(7)])
        assert {key: outcome.value for key, outcome in found.items()} == {f"k{i}": 3 * i for i in range(7)}
        assert {(outcome.failure, outcome.attempts) for outcome in found.values()} == {(None, 1)}

    def test_an_exception_fails_its_item_alone(self, session):
        def divide(_):
            return 1 / 0

        found = collect(session, [(0, lambda _: 12), (1, divide), (2, lambda _: sys.exit("leaving"))])
        assert [found[key].value for key in range(3)] == [12, None, None]
        assert "ZeroDivisionError" in found[1].failure and "in divide" in found[1].failure
        assert "SystemExit: leaving" in found[2].failure
        assert found[1].attempts == 1

    def test_items_may_be_none_or_few_or_a_generator(self, session):
        assert list(session.map([])) == []
        assert [outcome.value for outcome in session.map([("a", lambda _: 8)])] == [8]
        assert set(collect(session, ((i, lambda _: 0) for i in range(5)))) == set(range(5))

    def test_leaving_early_leaves_the_session_usable(self, session):
        taken = []

        def items():
            for number in range(100):
                taken.append(number)
                yield number, lambda _: time.sleep(0.05)

        next(outcomes := session.map(items()))
        outcomes.close()
        assert len(taken) <= 4  # items are taken as workers become free
        assert [outcome.value for outcome in session.map([("x", lambda _: 5)])] == [5]

    def test_tensors_arrive_with_layout_aliases_and_parameters(self, session):
        def look(context):
            weight = context["model"].weight
            return {
                "sum": context["images"].double().sum().item(),
                "strides": context["channels last"].stride(),
                "alias": context["second"].data_ptr() - context["images"].data_ptr(),
                "parameter": (type(weight) is torch.nn.Parameter, weight.requires_grad, weight.sum().item()),
                "empty": tuple(context["empty"].shape),
            }

        value = collect(session, [(0, look)])[0].value
        assert value == look(make_context())
        assert value["alias"] == 3 * 16 * 16 * 4

    def test_the_same_bits_on_every_backend(self, session):
        def train(context, seed):
            torch.manual_seed(seed)
            network = copy.deepcopy(context["model"])
            for _ in range(3):  # by hand: the first optimizer of a process loads for seconds
                loss = (network(context["images"] + torch.randn(1)) ** 2).mean()
                parameters = list(network.parameters())
                for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                    parameter.data -= 0.1 * slope
            return torch.get_num_threads(), network.weight.detach().flatten().tolist()

        items = [(seed, lambda context, seed=seed: train(context, seed)) for seed in range(3)]
        expected = run(
            InProcessBackend(threads=1), lambda context, item: item(context), make_context(), items
        )
        found = collect(session, items)
        assert [found[seed].value for seed in range(3)] == [expected[seed].value for seed in range(3)]
        assert found[0].value[0] == 1

    def test_a_closed_session_says_so(self, make_backend):
        with make_backend().open(lambda context, item: item, None) as session:
            pass
        session.close()
        with pytest.raises(InputError, match="closed"):
            list(session.map([(0, 0)]))

    def test_a_backend_may_be_entered_again_and_around_its_sessions(self, make_backend):
        backend = make_backend()
        for number in range(2):
            with backend:
                assert run(backend, lambda context, item: context + item, number, []) == {}

    def test_deaths_cost_a_retry_and_three_of_them_the_item(self, make_remote, session, tmp_path):
        def deadly(item):
            with (tmp_path / str(item)).open("a") as log:
                log.write("x")
            if item == 0 or (item == 1 and (tmp_path / "1").stat().st_size == 1):
                os.kill(os.getpid(), signal.SIGKILL)
            return item * 10

        found = collect(session, [(i, lambda _, i=i: deadly(i)) for i in range(4)])
        assert re.fullmatch(r"worker died 3 times \(last: .+\)", found[0].failure)
        assert [found[key].value for key in range(4)] == [None, 10, 20, 30]
        assert [found[key].attempts for key in range(4)] == [3, 2, 1, 1]
        assert [(tmp_path / str(key)).stat().st_size for key in range(4)] == [3, 2, 1, 1]

    @pytest.mark.slow  # test_a_death_is_described has one stopped
    def test_a_worker_that_hangs_or_is_stopped_costs_a_retry(self, make_remote, tmp_path):
        def hang(folder, item):
            with (folder / item).open("a") as log:
                log.write("x")
            first = (folder / item).stat().st_size == 1
            if item == "stops" and first:
                os.kill(os.getpid(), signal.SIGSTOP)
            while item == "hangs" and first:
                time.sleep(600)
            return item.upper()

        found = run(make_remote(timeout=3), hang, tmp_path, [(i, i) for i in ("hangs", "stops", "works")])
        assert {one.key: one.value for one in found.values()} == {
            "hangs": "HANGS",
            "stops": "STOPS",
            "works": "WORKS",
        }
        assert [found[key].attempts for key in ("hangs", "stops", "works")] == [2, 2, 1]

    @pytest.mark.slow  # test_cli_prune_stopped.py interrupts a whole run
    def test_an_interrupt_ends_what_is_running(self, make_remote, tmp_path):
        def stay(folder, item):
            (folder / str(os.getpid())).touch()
            time.sleep(600)

        def interrupt():
            eventually(lambda: len(list(tmp_path.iterdir())) == 2)
            os.kill(os.getpid(), signal.SIGINT)

        with make_remote().open(stay, tmp_path) as session, pytest.raises(KeyboardInterrupt):
            threading.Thread(target=interrupt).start()
            list(session.map([(0, 0), (1, 1)]))
        pids = [int(path.name) for path in tmp_path.iterdir()]
        assert len(pids) == 2 and os.getpid() not in pids
        assert eventually(lambda: not any(alive(pid) for pid in pids))

    def test_what_cannot_be_sent_is_explained(self, make_remote):
        with pytest.raises(InputError, match="workers=1"):
            make_remote().open(lambda context, item: item, threading.Lock())
        with (
            make_remote().open(lambda context, item: item, None) as session,
            pytest.raises(InputError, match="item 'bad' cannot be sent"),
        ):
            list(session.map([("bad", threading.Lock())]))

    def test_workers_that_cannot_rebuild_the_context_are_explained(self, make_remote):
        class Stubborn:
            def __reduce__(self):
                return (int, ("not a number",))

        with (
            make_remote().open(lambda context, item: item, Stubborn()) as session,
            pytest.raises(InputError, match=r"could not rebuild(.|\n)*ValueError"),
        ):
            list(session.map([(0, 0)]))

    def test_a_class_from_a_file_goes_along_and_a_lock_does_not_come_back(self, make_remote, tmp_path):
        source = tmp_path / "a_users_file.py"
        source.write_text("class Box:\n    def __init__(self, n):\n        self.n = n\n")
        spec = importlib.util.spec_from_file_location("a_users_file", source)
        module = importlib.util.module_from_spec(spec)
        sys.modules["a_users_file"] = module
        try:
            spec.loader.exec_module(module)
            box = module.Box

            def fill(context, item):
                return box(context.n + item) if item else threading.Lock()

            with make_remote().open(fill, box(40)) as session:
                found = collect(session, [(0, 2)]) | collect(session, [(1, 0)])  # in one worker
        finally:
            del sys.modules["a_users_file"]
        assert type(found[0].value) is box and found[0].value.n == 42
        assert "cannot pickle" in found[1].failure


class TestTimeLimit:
    """What an item may take follows from what others of its kind took."""

    def test_from_the_median_so_far_with_more_for_each_attempt(self):
        limit = TimeLimit("auto")
        assert [limit.of("a", attempt) for attempt in (1, 2, 3)] == [3600, 3 * 3600, 9 * 3600]
        for seconds in (40, 1, 10):
            limit.note("a", seconds)
        assert [limit.of("a", attempt) for attempt in (1, 2, 3)] == [200, 600, 1800]
        limit.note("b", 0.1)
        assert (limit.of("b", 1), limit.of("a", 1), limit.of("c", 1)) == (60, 200, 3600)

    def test_a_number_stays_and_off_is_never(self):
        fixed, off = TimeLimit(7.5), TimeLimit("off")
        for limit in (fixed, off):
            limit.note(None, 100)
        assert (fixed.of(None, 3), off.of(None, 1)) == (7.5, math.inf)

    @pytest.mark.parametrize("given", ["soon", 0, -1, "nan", math.inf, None, True])
    def test_what_is_none(self, given):
        for backend in (PoolBackend, RayBackend):
            with pytest.raises(InputError, match="auto, off or a number of seconds above 0, got"):
                backend(timeout=given)


def test_in_process_restores_the_number_of_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with InProcessBackend(threads=1).open(lambda _, item: torch.get_num_threads(), None) as session:
            for outcome in session.map([(0, 0)]):
                assert outcome.value == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class TestPool:
    """Deaths, interrupts and sharing: what happens between processes."""

    @pytest.mark.slow
    def test_workers_share_pages_and_an_interrupt_leaves_no_process(self, tmp_path):
        def write(data, item):
            if item == "sleep":
                (tmp_path / f"asleep {os.getpid()}").touch()
                time.sleep(600)
            (tmp_path / str(item)).touch()
            while len(list(tmp_path.iterdir())) < 2:  # so that each worker gets one of the two items
                time.sleep(0.05)
            before = int(data.sum())
            regions = Path("/proc/self/smaps").read_text().split("VmFlags")
            region = next(text for text in regions if "memfd:deeppruning" in text)
            copied = [line.split()[1] for line in region.splitlines() if line.startswith("Anonymous:")]
            data[:4096] = 1
            return os.getpid(), before, copied

        data = torch.zeros(1 << 20, dtype=torch.uint8)

        def interrupt():
            eventually(lambda: len(list(tmp_path.glob("asleep*"))) == 2)
            os.kill(os.getpid(), signal.SIGINT)

        with PoolBackend(workers=2).open(write, data) as session:
            values = [outcome.value for outcome in session.map([(0, 0), (1, 1)])]
            pids = {value[0] for value in values}
            assert len(pids) == 2 and os.getpid() not in pids
            assert [value[1:] for value in values] == [(0, ["0"])] * 2  # nothing written, no kB copied
            assert int(data.sum()) == 0
            with pytest.raises(KeyboardInterrupt):
                threading.Thread(target=interrupt).start()
                list(session.map([(0, "sleep"), (1, "sleep")]))
        assert [alive(pid) for pid in pids] == [False, False]

    def test_workers_outlive_the_thread_that_started_them_and_each_kind_has_its_time_limit(self):
        def begin():
            started.extend(session.map([(0, 0)]))

        started = []
        with PoolBackend(workers=1).open(lambda _, item: item, None, kind=type) as session:
            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()
            later, long = session.map([(1, 1), (2, "long")])
            # Short items must not set the limit of long ones, however many there are.
            assert [session._time_limit.of(kind, 1) for kind in (int, str, float)] == [60, 60, 3600]
        assert [(one.value, one.attempts, one.worker) for one in (*started, later, long)] == [
            (0, 1, later.worker),
            (1, 1, later.worker),
            ("long", 1, later.worker),
        ]

    def test_a_death_is_described(self, monkeypatch):
        def die(_, item):
            os.kill(os.getpid(), item)

        monkeypatch.setattr(workers, "DEATHS_ALLOWED", 1)
        found = run(PoolBackend(workers=2, timeout=1), die, None, [(0, signal.SIGKILL), (1, signal.SIGSTOP)])
        assert found[0].failure == "worker died 1 times (last: signal 9)"
        assert found[1].failure == "worker died 1 times (last: no answer within 1 s)"

    @pytest.mark.slow
    def test_a_message_too_long_for_a_pipe_stalls_nobody(self, tmp_path):
        """A worker that is stopped takes no request, and one stopped in mid-answer gives half of it."""
        long = bytes(2**22)

        class Folder:
            """Comes to a worker with another way to write answers."""

            def __init__(self, path):
                self.path = path

            def __setstate__(self, state):
                self.path = state["path"]
                process = sys.modules["deeppruning.backends.pool"]
                process.write_message = partial(self.write, process.write_message)

            def write(self, write_all, end, message):
                if len(message) < len(long) or (self.path / "stopped").exists():
                    return write_all(end, message)
                (self.path / "stopped").touch()
                end.write(len(message).to_bytes(8, "little") + message[: 2**21])
                end.flush()
                os.kill(os.getpid(), signal.SIGSTOP)

        def answer(folder, item):
            return item or None

        with PoolBackend(workers=1, timeout=5).open(answer, Folder(tmp_path)) as session:
            (idle,) = session.map([(0, b"")])
            os.kill(int(idle.worker.split(":")[1]), signal.SIGSTOP)
            (found,) = session.map([(1, long)])
        assert found.value == long
        assert found.attempts == 3  # stopped before the request, stopped in the answer, well

    @pytest.mark.slow
    def test_time_in_which_this_process_slept_counts_against_nobody(self, tmp_path, monkeypatch):
        """The sleep of the machine or of the process shows as a jump of the clock."""
        looks = itertools.count()

        def clock():
            look = next(looks)
            if look == 8:
                (tmp_path / "go").touch()
            return 10_000.0 * look

        def hold(folder, item):
            while item == "held" and not (folder / "go").exists():
                time.sleep(0.01)
            return item

        with PoolBackend(workers=1, timeout=3000).open(hold, tmp_path) as session:
            (first,) = session.map([(0, "free")])
            monkeypatch.setattr(limits, "monotonic", clock)
            (found,) = session.map([(1, "held")])
        assert (found.value, found.attempts, found.worker) == ("held", 1, first.worker)
        assert next(looks) > 8

    def test_workers_that_hang_while_starting_are_explained(self, monkeypatch):
        class Endless:
            def __reduce__(self):
                return (time.sleep, (600,))

        monkeypatch.setattr(pool, "_TIME_TO_START", 0.1)
        with (
            PoolBackend(workers=1).open(lambda context, item: item, Endless()) as session,
            pytest.raises(DeepPruningError, match=r"3 worker processes .* starting \(no answer within 0 s"),
        ):
            list(session.map([(0, 0)]))

    def test_workers_that_die_while_starting_are_explained(self, monkeypatch, capfd):
        monkeypatch.setenv("PYTHONHOME", "/nowhere")
        with (
            PoolBackend(workers=1).open(lambda context, item: item, None) as session,
            pytest.raises(DeepPruningError, match=r"3 worker processes in a row died .*\(exit code 1\)"),
        ):
            list(session.map([(0, 0)]))

    def test_a_script_needs_no_main_guard_and_its_workers_end_when_it_is_killed(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(
            textwrap.dedent(
                """
                import os, sys, time
                from deeppruning.backends import PoolBackend
                class Adder:
                    def __init__(self, n): self.n = n
                def add(context, item):
                    if item == "stay":
                        print("pid", os.getpid(), flush=True)
                        time.sleep(600)
                    return Adder(context.n + item)
                with PoolBackend(workers=2).open(add, Adder(1)) as session:
                    values = sorted(outcome.value.n for outcome in session.map((i, i) for i in range(3)))
                    print("values", values, flush=True)
                    list(session.map([(0, "stay"), (1, "stay")]))
                """
            )
        )
        with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
            lines = [parent.stdout.readline().split(maxsplit=1) for _ in range(3)]
            pids = [int(rest) for word, rest in lines if word == "pid"]
            assert lines[0] == ["values", "[1, 2, 3]\n"] and len(pids) == 2
            assert [alive(pid) for pid in pids] == [True, True]
            os.kill(pids[0], signal.SIGSTOP)
            parent.kill()
        assert eventually(lambda: not any(alive(pid) for pid in pids))
