"""Spark: a library as a pandas UDF over a column of images.

python examples/engines/spark_udf.py digits.so
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from held_back import images, tell
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import pandas_udf


def classifier(library: str) -> Callable[..., Column]:
    """A UDF from lists of 64 numbers to digits; each of Spark's workers loads the library once for a partition."""

    def classify(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import nnefc

        with nnefc.load(library, threads=1) as model:
            for column in columns:
                images = np.stack(column.to_list()).astype(np.float32).reshape(-1, 1, 8, 8)
                yield pd.Series(model(images).argmax(1))

    return pandas_udf(classify, "long")


def main(library: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")  # rows of a run at most
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = [(number, image.reshape(-1).tolist()) for number, image in enumerate(images())]
    frame = spark.createDataFrame(rows, "number long, image array<float>").repartition(2)
    classify = classifier(str(Path(library).resolve()))
    found = frame.select("number", classify("image").alias("digit")).orderBy("number").collect()
    tell("Spark", np.array([row.digit for row in found]))
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(sys.argv[1])
