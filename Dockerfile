# Two images of the same service: docker build --target cpu -t tagae:cpu . and docker build --target gpu -t tagae:gpu .
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS base
# wget is what KubeRay's probes call. Nothing is compiled here: the ops ship with a form in plain torch.
RUN apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ray
# One thread a process, and an allocator that keeps its blocks (see Makefile).
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1 \
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456
WORKDIR /opt/tagae
COPY constraints.txt ./

FROM base AS cpu-libraries
# Without the index of torch's CPU builds (pytorch.org, "Get started", names it) this stage works too, some GB larger:
# docker build --target cpu --build-arg TORCH_INDEX_URL=...
ARG TORCH_INDEX_URL
RUN pip install -c constraints.txt torch ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"}

FROM base AS gpu-libraries
RUN pip install -c constraints.txt torch

FROM cpu-libraries AS cpu
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY partitioning partitioning
COPY model model
COPY serve_app serve_app
RUN pip install -c constraints.txt . && install -d -o ray -g ray /var/lib/tagae
USER ray
WORKDIR /home/ray
EXPOSE 8000
CMD ["tagae", "serve", "--set", "serve.host=0.0.0.0", "--set", "store.path=/var/lib/tagae"]

FROM gpu-libraries AS gpu
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY partitioning partitioning
COPY model model
COPY serve_app serve_app
RUN pip install -c constraints.txt . && install -d -o ray -g ray /var/lib/tagae
USER ray
WORKDIR /home/ray
EXPOSE 8000
CMD ["tagae", "serve", "--set", "serve.host=0.0.0.0", "--set", "store.path=/var/lib/tagae"]
