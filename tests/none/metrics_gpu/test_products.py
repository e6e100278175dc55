"""Products on one BLAS thread, in a process that may use several."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.products import one_blas_thread, product


def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


class Watched(np.ndarray):
    """An array that notes the number of BLAS threads while it is multiplied."""

    def __matmul__(self, other):
        self.threads.append(threads())
        return np.asarray(self) @ other


def test_a_product_uses_one_thread_and_gives_the_others_back():
    weights = np.arange(6.0).reshape(2, 3).view(Watched)
    weights.threads = []
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        found = product(weights, np.ones(3))
        assert (weights.threads, threads()) == ([{1}], {2})
    assert found.tolist() == [3.0, 12.0]


def set_all(count):
    """By a thread that ends: the library heeds one thread alone while it lives."""
    setter = Thread(target=lambda: threadpool_limits(count, user_api="blas"))
    setter.start()
    setter.join()


def test_the_limit_of_another_thread_is_not_given_back_in_its_place():
    before = max(threads())
    set_all(2)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: threadpool_limits(1, user_api="blas").__enter__()).result()
        with one_blas_thread():
            pool.submit(other.__exit__, None, None, None).result()
        assert threads() == {2}
    set_all(before)


@pytest.mark.parametrize("first_leaves", [True, False])
def test_threads_inside_at_once_give_the_number_back(first_leaves):
    """Whoever is first, and with an error; both live on, as those of a pool do."""

    before = max(threads())
    set_all(2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(one_blas_thread().__enter__).result()
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            if first_leaves:
                pool.submit(one_blas_thread().__exit__, None, None, None).result()
            assert threads() == {1}
            raise ZeroDivisionError
        if not first_leaves:
            assert threads() == {1}
            pool.submit(one_blas_thread().__exit__, None, None, None).result()
        assert threads() == {2}
        assert pool.submit(lambda: (product(np.eye(3), np.ones(3)), threads())[1]).result() == {2}
    set_all(before)


def test_sums_of_resamples_use_it(monkeypatch):
    """The products of a table, of which there are thousands."""
    seen = []

    def watched(weights, values):
        seen.append(weights.shape)
        return weights @ values

    monkeypatch.setattr("xbench_fast.metrics_gpu.statistics.bootstrap.product", watched)
    draws = draw_patients(5, replicates=200)
    sums = draws.sums(np.arange(5), np.ones((5, 1)))
    assert seen == [(128, 5), (72, 5)]
    assert (sums == 5).all()


def start_evaluation():
    from xbench_fast.runtime.cli.app import main

    main(["--version"])


def start_export():
    from xbench_fast.export.cli.export_command import main

    raise SystemExit(main(["--model"]))  # wrong usage


@pytest.mark.parametrize("start", [start_evaluation, start_export])
@pytest.mark.parametrize(("set_by_user", "used"), [(None, "1"), ("4", "4")])
def test_a_command_has_one_thread_unless_the_user_says_another_number(monkeypatch, start, set_by_user, used):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", set_by_user or "0")  # put back after the test
    if set_by_user is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    with pytest.raises(SystemExit):
        start()
    assert os.environ["OPENBLAS_NUM_THREADS"] == used
