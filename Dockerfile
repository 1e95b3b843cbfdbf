# The agent in a container: `docker build -t agent .`, or `docker compose up` with PostgreSQL.
# docs/operations.md describes it.

FROM python:3.13-slim AS build
WORKDIR /source
RUN python -m venv /opt/agent
# The versions of a release, each file by its hash. They change less often than the code.
COPY constraints.txt ./
RUN /opt/agent/bin/pip install --no-cache-dir --require-hashes --requirement constraints.txt
COPY pyproject.toml setup.py MANIFEST.in README.md ./
COPY man ./man
COPY examples ./examples
COPY agent ./agent
RUN /opt/agent/bin/pip install --no-cache-dir --no-deps .
# What else steps need, as in "opentelemetry-exporter-otlp-proto-http".
ARG PACKAGES=""
RUN if [ -n "$PACKAGES" ]; then /opt/agent/bin/pip install --no-cache-dir $PACKAGES; fi

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home --home-dir /home/agent --shell /usr/sbin/nologin agent \
    && install --directory --owner agent --group agent --mode 0700 /agent /agent/data /agent/workflows
COPY --from=build /opt/agent /opt/agent
ENV PATH=/opt/agent/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    AGENT_LOG__FORMAT=json \
    # Other machines reach it only through what the container publishes.
    AGENT_SERVER__HOST=0.0.0.0 \
    AGENT_SERVER__ALLOW_REMOTE=true
USER agent
WORKDIR /agent
VOLUME /agent/data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8420/healthz', timeout=4)"]
ENTRYPOINT ["agent"]
CMD ["up"]
