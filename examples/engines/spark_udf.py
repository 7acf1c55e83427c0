"""Spark: a library as a pandas UDF over a column of images.

python examples/engines/spark_udf.py digits.so                                  # on this machine
python examples/engines/spark_udf.py digits.so --master spark://10.0.0.1:7077
spark-submit --master spark://10.0.0.1:7077 --py-files job.py examples/engines/spark_udf.py digits.so
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from job import Job, batch_size, images, job_of, report
from pyspark import SparkConf, SparkFiles
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import pandas_udf


def classifier(library: str, pause: float) -> Callable[..., Column]:
    """A UDF from lists of 64 numbers to digits and processes; `library` is the name of a file that Spark brings."""

    def classify(columns: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        import nnefc

        process = f"{socket.gethostname()}:{os.getpid()}"
        with nnefc.load(SparkFiles.get(library), threads=1) as model:
            for column in columns:
                time.sleep(pause)
                images = np.stack(column.to_list()).astype(np.float32).reshape(-1, 1, 8, 8)
                yield pd.DataFrame({"digit": model(images).argmax(1), "process": process})

    return pandas_udf(classify, "digit long, process string")


def connect(cluster: str | None) -> SparkSession:
    """Connects to a master: that of the option, that of spark-submit, or else this machine's cores."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if cluster is not None:
        builder = builder.master(cluster)
    elif not SparkConf().contains("spark.master"):
        builder = builder.master("local[*]")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    return builder.getOrCreate()


def main(job: Job, spark: SparkSession) -> None:
    rows = [(number, image.reshape(-1).tolist()) for number, image in enumerate(images(job.copies))]
    cores = spark.sparkContext.defaultParallelism
    size = batch_size(len(rows), cores, job.library)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", size)
    spark.sparkContext.addFile(str(job.library.resolve()))  # each executor fetches it once
    frame = spark.createDataFrame(rows, "number long, image array<float>").repartition(4 * cores)
    classify = classifier(job.library.name, job.pause)
    found = frame.select("number", classify("image").alias("found")).select("number", "found.*").toPandas()
    report("Spark", found["number"].to_numpy(), found["digit"].to_numpy(), set(found["process"]), job.copies)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = job_of("--master", "SPARK_MASTER", "the master's address, as spark-submit takes it")
    session = connect(given.cluster)
    session.sparkContext.setLogLevel("ERROR")
    main(given, session)
    session.stop()
