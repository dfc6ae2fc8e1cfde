"""Runs on real Ray clusters of several nodes, on this machine: equal to local ones, whatever is lost."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import deeppruning as dp
from cli_search import arguments, trained
from deeppruning.backends import ray_cluster as ray_nodes
from deeppruning.backends.ray_cluster import Share
from deeppruning.cli.commands.prune import prune as cli_prune
from deeppruning.cli.commands.resume import resume as cli_resume
from deeppruning.display.progress import PlainProgress
from deeppruning.errors import InputError
from deeppruning.searching.events import CandidateDone, GenerationDone
from processes import alive, eventually
from ray_cluster import TOO_SLOW, TRIES, WHY_SKIPPED, add_node, connected, lose_node
from search_helpers import digits, outcome, quick_finetune, quick_guided, quick_search, tiny_net
from signalled import start

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster():
    with connected("one", "two") as cluster:
        yield cluster


def prune(run_dir, **options):
    train, test = digits()
    options = {"search": quick_search(), "finetune": quick_finetune(), **options}
    return dp.prune(tiny_net(), train, test, run_dir=run_dir, **options)


def ids_by_name():
    return {name: id_ for id_, name in ray_nodes.names(ray_nodes.alive()).items()}


def wait_for_nodes(folder, number):
    """Wait, in a worker, until so many nodes have come here: none of them is left out by being slow."""
    import ray

    if not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return  # the program that directs the run asks for the original's cost itself
    (folder / ray.get_runtime_context().get_node_id()).touch()
    while len(list(folder.iterdir())) < number:
        time.sleep(0.05)


class Lines(PlainProgress):
    """What would be printed, without what Ray prints in between."""

    def __init__(self):
        super().__init__()
        self.said = ""

    def say(self, text):
        self.said += f"{text}\n"


@pytest.mark.slow
def test_result_equals_the_local_one_though_a_node_is_lost_in_mid_run(cluster, tmp_path):
    third = add_node(cluster, "three")
    progress = Lines()
    removed, counts, places = [], [], []
    met = tmp_path / "met"
    met.mkdir()

    def cost(model):
        wait_for_nodes(met, 3)
        return sum(parameter.numel() for parameter in model.parameters())

    def observer(event):
        progress(event)
        if isinstance(event, GenerationDone):
            counts.append(progress.state.by_node())
        if not isinstance(event, CandidateDone):
            return
        node = event.candidate.evaluated.worker.split(":")[0]
        if event.fresh and len(progress.state.nodes) > 1:  # until then there is nothing to tell apart
            places.append(node)
        if event.fresh and node == "three" and not removed:
            lose_node(cluster, third)
            removed.append(progress.state.done)

    # The objective of a user's own is steered by the FLOPs; both candidates and guide are the same.
    options = {"search": quick_guided(low=0.05, high=0.95, generations=2), "objective": cost}
    prune(tmp_path / "cluster", backend=dp.RayBackend(), observer=observer, **options)
    prune(tmp_path / "local", workers=1, **options)
    assert removed and removed[0] < 11
    assert outcome(tmp_path / "cluster") == outcome(tmp_path / "local")
    assert set(progress.state.nodes) == {"one", "two", "three"}
    assert re.findall(r"\| (nodes: .*)", progress.said) == counts and len(counts) == 2
    assert re.findall(r"candidate .*  on (\w+)", progress.said) == places != []


@pytest.mark.slow
def test_a_node_that_joins_is_used_and_one_that_is_lost_costs_a_retry(cluster, tmp_path):
    def hold(folder, item):
        import ray

        (folder / f"{ray.get_runtime_context().get_node_id()}@{item}").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        return 10 * item

    def collect():
        with dp.RayBackend().open(hold, tmp_path) as session:
            found.extend(session.map((number, number) for number in range(5)))

    def held_by(id_):
        return [int(path.name.split("@")[1]) for path in tmp_path.glob(f"{id_}@*")]

    found = []
    work = threading.Thread(target=collect)
    work.start()
    try:
        assert eventually(lambda: len(held_by("*")) == 2)
        node = add_node(cluster, "late")
        late = ids_by_name()["late"]
        assert eventually(lambda: held_by(late))
        lost = held_by(late)
        lose_node(cluster, node)
    finally:
        (tmp_path / "go").touch()
        work.join()
    assert {one.key: one.value for one in found} == {number: 10 * number for number in range(5)}
    assert len(lost) == 1
    assert {one.key: one.attempts for one in found if one.attempts > 1} == {lost[0]: 2}


@pytest.mark.slow
def test_the_data_set_goes_to_each_node_once_and_is_shared_there(cluster, tmp_path):
    size = 32 * 2**20
    data = torch.arange(size // 8)

    def look(data, item):
        wait_for_nodes(tmp_path, 2)
        address = data.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            low, high = (int(end, 16) for end in line.split()[0].split("-"))
            if low <= address < high:
                return int(data[item]), "plasma" in line
        return None

    before = stores()
    with dp.RayBackend().open(look, data) as session:
        outcomes = list(session.map((number, number) for number in range(24)))
        after = stores()
    assert {one.key: one.value for one in outcomes} == {number: (number, True) for number in range(24)}
    assert {one.worker.split(":")[0] for one in outcomes} == {"one", "two"}
    for name, store in after.items():
        assert size < store.object_store_bytes_used < 1.01 * size
        taken_in = store.cumulative_created_bytes - before[name].cumulative_created_bytes
        assert size < taken_in < 1.001 * size  # 24 items, one copy


def stores():
    """What the object store of each node says of itself, by the node's name."""
    from ray._private.internal_api import node_stats

    nodes = ray_nodes.alive()
    called = ray_nodes.names(nodes)
    return {
        called[node["NodeID"]]: node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats
        for node in nodes
    }


@pytest.mark.slow
def test_a_driver_killed_is_resumed_on_another_backend(cluster, tmp_path):
    model, weights = trained(tmp_path)
    more = ["--offspring", 12]
    whole = CliRunner().invoke(cli_prune, arguments(model, weights, tmp_path / "whole", *more))
    assert whole.exit_code == 0
    out = tmp_path / "killed"
    more += ["--backend", "ray", "--ray-address", cluster.address, "--workers", 2]
    given = arguments(model, weights, out, *more)
    with start(signal.SIGKILL, "candidate  5/27", "prune", *given) as driver:
        errors = driver.communicate()[1]
    assert driver.returncode == -signal.SIGKILL, errors
    assert f'ray_address = "{cluster.address}"' in (out / "config.toml").read_text()
    assert not (out / "knee.safetensors").exists()
    resumed = CliRunner().invoke(cli_resume, [str(out), "--backend", "local", "--workers", "1"])
    assert "5 of 27 candidates are known" in resumed.stdout
    for role in ("knee", "heavy", "light"):
        name = f"{role}.safetensors"
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def descendants(pid):
    """All processes below this one, but for Ray's two helpers of a node, which take their time to end."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
            if "(ray::Dashboard" not in name and "(ray::RuntimeEnv" not in name:
                parents[int(stat.parent.name)] = int(rest.split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


LOCAL = """
import time
import deeppruning as dp
def add(base, item):
    if item == "stay":
        time.sleep(600)
    return base + item
with dp.RayBackend(workers=1).open(add, 1) as session:
    print(sorted(outcome.value for outcome in session.map(enumerate([1, 2]))), flush=True)
    input()
    {then}
print("closed", flush=True)
input()
"""


@contextmanager
def local_ray(folder, then):
    """A program with a Ray of its own, once it has the first values; `then` is its next line."""
    pytest.importorskip("ray")
    script = folder / "script.py"
    script.write_text(LOCAL.format(then=then))
    for _ in range(TRIES):
        errors = folder / "errors"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                [sys.executable, script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                bufsize=1,
            ) as program,
        ):
            said = program.stdout.readline()
            if said:
                assert said == "[2, 3]\n"
                yield program
                program.kill()
                return
        assert TOO_SLOW in errors.read_text()
    pytest.skip(WHY_SKIPPED)


@pytest.mark.slow
def test_a_local_ray_stops_by_itself(tmp_path):
    with local_ray(tmp_path, "pass") as program:
        assert len(descendants(program.pid)) > 2
        program.stdin.write("\n")
        assert program.stdout.readline() == "closed\n"
        assert eventually(lambda: descendants(program.pid) == set())


@pytest.mark.slow
def test_a_local_ray_dies_with_its_program(tmp_path):
    with local_ray(tmp_path, 'list(session.map([(0, "stay")]))') as program:
        program.stdin.write("\n")
        below = descendants(program.pid)
        assert len(below) > 2
        program.kill()
        assert eventually(lambda: not any(alive(pid) for pid in below))


class TestBadInput:
    """Errors that come before any work."""

    def test_ray_that_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(InputError, match=r"pip install 'ray\[client\]>=2.40'"):
            dp.RayBackend().open(lambda context, item: item, None)

    @pytest.mark.parametrize(
        "options, message",
        [
            ({"cpus": 0}, "cpus.*above 0"),
            ({"gpus": 1.5}, "0..1 or a whole number"),
            ({"threads": 0}, "threads must be at least 1"),
            ({"workers": 0}, "workers must be at least 1"),
        ],
    )
    def test_shares_that_make_no_sense(self, options, message):
        with pytest.raises(InputError, match=message):
            dp.RayBackend(**options)

    def test_devices_follow_from_the_share_of_a_gpu(self):
        assert dp.RayBackend().device("auto") == "cpu"
        assert dp.RayBackend(gpus=0.5).device("auto") == dp.RayBackend(gpus=0.5).device("cuda") == "cuda"
        for backend, device in ((dp.RayBackend(), "cuda"), (dp.RayBackend(gpus=1), "cuda:1")):
            with pytest.raises(InputError, match="--ray-gpus"):
                backend.device(device)

    @pytest.fixture
    def silent_port(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server.getsockname()[1]

    @pytest.mark.slow
    def test_addresses_where_there_is_no_ray(self, tmp_path, silent_port):
        """In a process of its own, because this one may be connected."""
        pytest.importorskip("ray")
        model, weights = trained(tmp_path)
        given = arguments(model, weights, tmp_path / "run")
        messages = {
            "127.0.0.1:1": "no program answers.*refused.*ray status",
            "ray://127.0.0.1:1": "no program answers.*refused.*client port",
            "cluster": "unknown Ray address 'cluster'",
            f"127.0.0.1:{silent_port}": f"no Ray cluster .* '127.0.0.1:{silent_port}'.*ray status",
        }
        code = (
            "import sys; from click.testing import CliRunner\n"
            "from deeppruning.cli.commands.prune import prune\n"
            f"for address in {list(messages)}:\n"
            "    print(CliRunner().invoke(prune, [*sys.argv[1:], '--ray-address', address]).exception)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *given], capture_output=True, text=True, check=True
        )
        for said, message in zip(done.stdout.splitlines(), messages.values(), strict=True):
            assert re.search(message, said)
        assert not (tmp_path / "run").exists()

    def test_more_than_any_node_has(self, cluster, tmp_path):
        with pytest.raises(InputError, match="needs a GPU and no node has one"):
            prune(tmp_path / "run", backend=dp.RayBackend(gpus=1))
        with pytest.raises(InputError, match=r"needs 2 CPUs and no node has that much \(nodes: 1 CPU"):
            prune(tmp_path / "run", backend=dp.RayBackend(cpus=2))
        assert not (tmp_path / "run").exists()

    def test_another_cluster_than_the_one_connected_to(self, cluster):
        with (
            pytest.raises(InputError, match="connected to another Ray"),
            dp.RayBackend(address="127.0.0.1:1"),
        ):
            pass

    @pytest.mark.slow
    def test_a_node_without_the_package_or_with_another_version(self, cluster, tmp_path):
        package = tmp_path / "deeppruning"
        package.mkdir()
        (package / "__init__.py").write_text("raise ModuleNotFoundError('there is no deeppruning')")
        node = add_node(cluster, "bare", env_vars={"PYTHONPATH": str(tmp_path)})
        try:
            with pytest.raises(
                InputError, match=r"node bare does not have deeppruning.*install deeppruning-es"
            ):
                prune(tmp_path / "run", backend=dp.RayBackend())
            (package / "__init__.py").write_text("")
            (package / "version.py").write_text("__version__ = '0.0.1'")
            with pytest.raises(InputError, match=r"node bare has other versions.*deeppruning 0\.0\.1 there"):
                prune(tmp_path / "run", backend=dp.RayBackend())
        finally:
            lose_node(cluster, node)
        assert not (tmp_path / "run").exists()


def node(id_, *, host="h", name="10.0.0.1", **resources):
    described = {"NodeID": id_, "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": host}
    return {**described, "NodeName": name, "Resources": resources}


def test_room_on_a_node():
    assert Share(1, 0).fits(node("a", CPU=4.0)) == 4
    assert Share(1.5, 0).fits(node("a", CPU=4.0)) == 2
    assert Share(1, 0.1).fits(node("a", CPU=32.0, GPU=1.0)) == 10
    assert Share(1, 0.5).fits(node("a", CPU=3.0, GPU=2.0)) == 3
    assert Share(1, 1).fits(node("a", CPU=8.0)) == 0


def test_names_of_nodes():
    nodes = [node("aaaaaa", host="x"), node("bbbbbb", host="y"), node("cccccc", host="y")]
    nodes.append(node("dddddd", host="z", name="big"))
    assert list(ray_nodes.names(nodes).values()) == ["x", "y#bbbb", "y#cccc", "big"]


def test_a_choice_of_backend_is_kept_unless_another_is_made():
    from deeppruning.cli.options.backend import BackendChoice

    told = {"ray_address": "auto", "ray_gpus": 0.5}
    stored = BackendChoice(backend="ray", options=told).table(threads=1)
    assert stored == {"backend": "ray", "ray_address": "auto", "ray_gpus": 0.5}
    assert BackendChoice().or_as_in(stored) == BackendChoice(backend="ray", options=told)
    elsewhere = BackendChoice(options={"ray_address": "h:1"}).or_as_in(stored)
    assert elsewhere == BackendChoice(backend="ray", options={"ray_address": "h:1", "ray_gpus": 0.5})
    assert BackendChoice(backend="local").or_as_in(stored) == BackendChoice(backend="local")
    ray = BackendChoice(backend="ray")
    assert ray.or_as_in({"backend": "local", "workers": 2}) == ray
    assert BackendChoice(options={"ray_cpus": 2}).or_as_in({}).backend == "ray"
    with pytest.raises(InputError, match="ray_cpus must be a number, got 'two'"):
        BackendChoice(options={"ray_cpus": "two"})
    with pytest.raises(InputError, match="--ray-gpus needs --backend ray"):
        BackendChoice(backend="local", options={"ray_gpus": 1})
    for stored in ({"backend": "ray", "candidate_timeout": 9.5}, {"candidate_timeout": 9.5}):
        choice = BackendChoice().or_as_in(stored)
        assert choice.table(threads=1)["candidate_timeout"] == 9.5
    assert dp.RayBackend().timeout == "auto"
    assert BackendChoice(backend="ray", candidate_timeout=9.5).make(1, "auto", print).timeout == 9.5
    with pytest.raises(InputError, match="auto, off or a number"):
        BackendChoice(candidate_timeout="soon")
    with pytest.raises(InputError, match="unknown backend 'rey'; did you mean ray"):
        BackendChoice(backend="rey")


@pytest.mark.slow
def test_importing_deeppruning_does_not_import_ray():
    code = "import deeppruning as dp, sys; dp.prune; dp.RayBackend(); sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
