# Two images of the same service: docker build --target cpu -t tagae:cpu . and docker build --target gpu -t tagae:gpu .
#
# For a release use `make images IMAGE=REGISTRY/tagae`. It looks up the digest of the base image and builds from that, and
# writes manifests that name the built images by digest. The digest does not stand here: it is of the day, and a wrong or
# an old one would be worse than a tag, since it would keep security fixes of the base image out without a word.
#
# The images run with a read-only root file system. What must be writable: /tmp (Ray's sockets and logs are in /tmp/ray),
# /home/ray (caches) and /var/lib/tagae (state):
#   docker run --read-only --tmpfs /tmp --tmpfs /home/ray:uid=1000,gid=1000 --shm-size 1g -v tagae:/var/lib/tagae \
#     --cap-drop ALL --security-opt no-new-privileges -p 127.0.0.1:8000:8000 tagae:cpu
#
# The folder lab is left out: no service simulates, trains, evaluates or shows the demo. The wheel has it.
ARG BASE=python:3.11-slim
ARG CUDA=nvidia/cuda:13.0.1-devel-ubuntu24.04

FROM ${CUDA} AS cuda
# Only its compiler is used, to build the ops for GPUs. No file of it comes into an image.

FROM ${BASE} AS libraries
# Compiles the network's ops (kernels/csrc). The images that run have no compiler. If the ops for GPUs cannot be compiled,
# the build continues, and the image runs their PyTorch form; `tagae doctor` shows it.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/tagae
ENV PATH=/opt/tagae/bin:$PATH
WORKDIR /build
COPY constraints.txt requirements.lock ./
# Hashes of everything but torch: its wheels differ from index to index (see pyproject.toml).
RUN pip install --require-hashes --no-deps -r requirements.lock

FROM libraries AS cpu-build
# On x86-64 it needs the index of torch's CPU builds (pytorch.org, "Get started", names it), since torch's default build
# brings some GB of CUDA: docker build --target cpu --build-arg TORCH_INDEX_URL=...
ARG TORCH_INDEX_URL
RUN pip install -c constraints.txt torch ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"}
RUN python -c "import sys, torch; torch.version.cuda and sys.exit( \
    f'expected torch without CUDA in this image, got {torch.__version__}; give --build-arg TORCH_INDEX_URL')"
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY partitioning partitioning
COPY model model
COPY serve_app serve_app
RUN pip install --no-deps --no-build-isolation . && pip check && pip uninstall --yes pip

FROM libraries AS gpu-build
RUN pip install -c constraints.txt torch
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY partitioning partitioning
COPY model model
COPY serve_app serve_app
RUN --mount=type=bind,from=cuda,source=/usr/local/cuda-13.0,target=/usr/local/cuda-13.0 NVCC=/usr/local/cuda-13.0/bin/nvcc \
    pip install --no-deps --no-build-isolation . && pip check && pip uninstall --yes pip

FROM ${BASE} AS runtime
# wget is what KubeRay's probes call. Nothing is installed or compiled in a running container, so pip is not there.
RUN apt-get update && apt-get upgrade -y && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* && python -m pip uninstall --yes pip setuptools wheel \
    && useradd --create-home --uid 1000 ray && install -d -o ray -g ray /var/lib/tagae
# One thread a process, and an allocator that keeps its blocks (see Makefile).
ENV PATH=/opt/tagae/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1 \
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456 MALLOC_ARENA_MAX=1 \
    HOME=/home/ray XDG_STATE_HOME=/var/lib RAY_TMPDIR=/tmp MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /home/ray
EXPOSE 8000
CMD ["tagae", "serve", "--set", "serve.host=0.0.0.0", "--set", "serve.tokens_file=/etc/tagae/tokens.toml", "--set", "store.path=/var/lib/tagae"]

FROM runtime AS cpu
COPY --from=cpu-build /opt/tagae /opt/tagae
USER 1000:1000

FROM runtime AS gpu
COPY --from=gpu-build /opt/tagae /opt/tagae
USER 1000:1000
