# docker build -t algnn . && docker run --rm -v "$PWD:/home/algnn" algnn demo
FROM python:3.12-slim
# the wheel index for your hardware that pytorch.org names, such as its CPU one: --build-arg INDEX=…
ARG INDEX=""
COPY . /src
RUN pip install --no-cache-dir ${INDEX:+--index-url "$INDEX"} torch
RUN pip install --no-cache-dir "/src[parquet]"
WORKDIR /home/algnn
ENV ALGNN_DATA=/home/algnn/data
ENTRYPOINT ["algnn"]
