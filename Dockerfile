# The service over one bundle (docs/serving.md). tests/test_dockerfile.py runs the install step and the start command in a
# fresh virtual environment.
FROM python:3.13-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY lightgc2n ./lightgc2n
RUN python -m pip install --no-cache-dir --constraint constraints.txt ".[serve]"
RUN useradd --system --no-create-home --uid 10001 service
USER service
WORKDIR /
ENV OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE MALLOC_ARENA_MAX=2
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz')"]
ENTRYPOINT ["lightgc2n", "serve", "/bundles/live", "--host", "0.0.0.0"]
CMD ["--port", "8000", "--api-key-file", "/run/secrets/keys"]
