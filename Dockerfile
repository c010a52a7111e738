# gradmix serve in a container. Build and run it as docs/deploy.md says (A container).
FROM python:3.11.11-slim-bookworm AS build
# An index with CPU builds of torch, if the usual one has only larger ones: --build-arg PIP_EXTRA_INDEX_URL=…
ARG PIP_EXTRA_INDEX_URL=""
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/gradmix \
 && /opt/gradmix/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".[serve]"

FROM python:3.11.11-slim-bookworm
COPY --from=build /opt/gradmix /opt/gradmix
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin gradmix
USER gradmix
WORKDIR /home/gradmix
ENV PATH=/opt/gradmix/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:7860/healthz', timeout=4)"]
ENTRYPOINT ["gradmix"]
# Without the token's file it does not start: nobody serves to the world without one by mistake.
CMD ["serve", "/model", "--host", "0.0.0.0", "--token-file", "/run/secrets/gradmix_token"]
