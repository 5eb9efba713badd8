# The service and its page on a CPU, with the bundled model. It downloads nothing at run time.
#
#   docker build -t vcc --build-arg TORCH_FROM=INDEX .      (INDEX: a package index with CPU builds of torch; the default build
#                                                            includes gigabytes for GPUs)
#   docker run --rm -p 127.0.0.1:8756:8756 -e VCC_TOKEN=... --read-only --tmpfs /tmp -v vcc-data:/data vcc
FROM python:3.11-slim-bookworm AS build

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
ARG TORCH_FROM
# torch first, with its exact version: a range would install the newest.
RUN python -m venv /opt/vcc \
    && env ${TORCH_FROM:+PIP_INDEX_URL="$TORCH_FROM"} \
       /opt/vcc/bin/pip install --no-cache-dir "$(grep '^torch==' constraints.txt)" \
    && /opt/vcc/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.11-slim-bookworm

RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin vcc \
    && install -d -o vcc -g vcc -m 700 /data
COPY --from=build /opt/vcc /opt/vcc
ENV PATH=/opt/vcc/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    XDG_CACHE_HOME=/tmp
USER 10001
VOLUME /data
EXPOSE 8756
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8756/health', timeout=4)"]
# Other machines can reach it, so it does not start without VCC_TOKEN.
ENTRYPOINT ["vcc", "serve", "--host", "0.0.0.0", "--port", "8756", "--folder", "/data"]
