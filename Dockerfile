# syntax=docker/dockerfile:1
# The agent's image: docker build --tag vdev:dev .     (both architectures: docker buildx build --platform linux/amd64,linux/arm64)
# Only the base image comes from a registry of images; the packages come from the lock, hash by hash. Pin the base with
#   --build-arg BASE_DIGEST=sha256:…
ARG BASE=python:3.13-slim-bookworm
ARG BASE_DIGEST=

FROM ${BASE}${BASE_DIGEST:+@${BASE_DIGEST}} AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python -m pip install --no-cache-dir --no-compile --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --only-binary=:all: --target /opt/vdev/lib --requirement requirements/run.txt
COPY vdev /opt/vdev/lib/vdev
COPY LICENSE /opt/vdev/LICENSE
# A script instead of an installed package: it needs no build backend, which the lock does not have.
RUN mkdir -p /opt/vdev/bin \
    && printf '%s\n' '#!/usr/bin/env python3' 'import sys' 'from vdev.__main__ import main' 'sys.exit(main())' > /opt/vdev/bin/vdev \
    && chmod 755 /opt/vdev/bin/vdev
# Bytecode by hash and unchecked: the same bytes in every build, and nothing to look at when it starts.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/vdev/lib

FROM ${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}
# The base comes without the bytecode of the standard library; on a read-only root every start would compile it again.
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/bin/pip* \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
       -x '/(test|tests|idlelib|tkinter|turtledemo|ensurepip|pydoc_data|lib2to3)/' /usr/local/lib/python3*/
COPY --from=build /opt/vdev /opt/vdev
ENV PATH=/opt/vdev/bin:$PATH \
    PYTHONPATH=/opt/vdev/lib \
    PYTHONDONTWRITEBYTECODE=1
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="vdev" \
      org.opencontainers.image.description="A Kubernetes device plugin that makes a node advertise any device that a YAML file declares" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# Root, since the kubelet's directories belong to root; the manifests take everything else away.
USER 0:0
ENTRYPOINT ["vdev"]
CMD ["run"]
