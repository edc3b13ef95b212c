# docker build -t algnn . && docker run --rm -v "$PWD:/work" algnn demo
FROM python:3.12-slim
# the wheel index for your hardware that pytorch.org names, such as its CPU one: --build-arg INDEX=…
ARG INDEX=""
COPY . /src
RUN pip install --no-cache-dir ${INDEX:+--index-url "$INDEX"} torch
RUN pip install --no-cache-dir "/src[parquet]"
WORKDIR /work
ENV ALGNN_DATA=/work/data
ENTRYPOINT ["algnn"]
