# EMU for CPUs: `make docker` builds it, docs/how-to/install.md says how to run it.
FROM python:3.11-slim

# numba and JAX come as wheels; git is asked for the commit of a run's provenance and may be missing.
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt /src && rm -rf /src

RUN useradd --create-home --uid 1000 emu
USER emu
WORKDIR /home/emu
ENTRYPOINT ["emu"]
CMD ["--help"]
