"""A cluster of Spark in the JVM of a driver: a master and workers with addresses of their own, for executors.

``local-cluster`` is one, too. There all executors have one address, and Spark starts no speculative attempt at a task
where another attempt runs.
"""

from __future__ import annotations

from typing import Any, Final

#: The value of ``spark.master`` for such a cluster.
CLUSTER: Final = "cluster of this JVM"

#: Addresses of the workers, each with one executor. All of them are this machine.
_WORKERS: Final = ("127.0.0.2", "127.0.0.3")
_MASTER: Final = "127.0.0.1"
#: Cores and MiB of a worker.
_CORES: Final = 1
_MEMORY: Final = 640
_SETTINGS: Final = {
    # Executors are killed again and again.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.master.rest.enabled": "false",
    "spark.master.ui.enabled": "false",
    "spark.worker.ui.enabled": "false",
}
#: Property of the JVM with the address of its cluster.
_PROPERTY: Final = "aflow.bench.cluster"


def cluster_of(gateway: Any, folder: str) -> str:
    """Return the address of the cluster in the JVM of ``gateway``, started by the first call.

    ``folder`` receives the output of executors.
    """
    jvm = gateway.jvm
    properties = jvm.java.lang.System
    if (known := properties.getProperty(_PROPERTY)) is not None:
        return str(known)
    conf = jvm.org.apache.spark.SparkConf()
    for name, value in _SETTINGS.items():
        conf.set(name, value)
    deploy = jvm.org.apache.spark.deploy
    started = deploy.master.Master.startRpcEnvAndEndpoint(_MASTER, 0, 0, conf)
    address = f"spark://{_MASTER}:{started._1().address().port()}"
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = address
    option = _module(jvm.scala, "Option$")
    for number, host in enumerate(_WORKERS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, _CORES, _MEMORY, masters, folder, option.apply(number), conf, option.empty()
        )
    properties.setProperty(_PROPERTY, address)
    return address


def _module(package: Any, name: str) -> Any:
    """Return an object of Scala."""
    return getattr(getattr(package, name), "MODULE$")
