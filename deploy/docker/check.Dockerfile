# The check service, on nothing but Python. From the repository's root: docker build -f deploy/docker/check.Dockerfile .
# PYTHON may name the base image by digest.
ARG PYTHON=python:3.11-slim

FROM ${PYTHON}
WORKDIR /service
COPY gpu_scheduler_check gpu_scheduler_check
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpu_scheduler_check"]
