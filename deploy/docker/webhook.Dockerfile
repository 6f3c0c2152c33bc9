# The admission webhook. From the repository's root: docker build -f deploy/docker/webhook.Dockerfile .
# PYTHON may name the base image by digest.
ARG PYTHON=python:3.11-slim

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
COPY reservation_core reservation_core
COPY reservation_expiry reservation_expiry
COPY reservation_processor reservation_processor
COPY standalone standalone
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${PYTHON}
COPY --from=build /venv /venv
ENV PATH=/venv/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8443
# Whether it answers; whom it is to convince by its certificate is the API server.
HEALTHCHECK CMD ["python", "-c", "import ssl, urllib.request as u; u.urlopen('https://127.0.0.1:8443/health', timeout=3, context=ssl._create_unverified_context())"]
ENTRYPOINT ["python", "-m", "admission_webhook"]
CMD ["serve", "--listen=0.0.0.0:8443", "--tls-cert=/certificates/tls.crt", "--tls-key=/certificates/tls.key"]
