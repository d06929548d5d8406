# The service. `docker build -t toolbelay .`; `docker run toolbelay --help` lists the commands.
ARG PYTHON_IMAGE=python:3.13.5-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements.txt requirements-build.txt ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements-build.txt \
 && python -m venv /opt/toolbelay \
 && /opt/toolbelay/bin/pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY service service
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/toolbelay/bin/pip install --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin toolbelay
COPY --from=build /opt/toolbelay /opt/toolbelay
ENV PATH=/opt/toolbelay/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 50051 50052 9464
STOPSIGNAL SIGTERM
# Asks grpc.health.v1 at TOOLBELAY_ADDRESS; fails while the service is starting, not ready or stopping.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["toolbelay", "health"]
ENTRYPOINT ["toolbelay"]
CMD ["serve"]
