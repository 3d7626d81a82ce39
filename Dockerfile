# The images of `make image` for whoever builds with a container engine, for amd64 and arm64: the targets `small`, `node` and `mover`.
# docs/install.md says how they are pushed for both. deploy/image/root.sh decides what is in them, here and there.

# The compiler runs on the builder's own processor, whatever the image is for.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95.0-slim-bookworm AS program
ARG TARGETARCH
WORKDIR /checkout
# For another processor it needs a linker, and ring a C compiler.
RUN set -eu; \
    case "$TARGETARCH" in \
        amd64) cpu=x86_64 gcc=gcc-x86-64-linux-gnu ;; \
        arm64) cpu=aarch64 gcc=gcc-aarch64-linux-gnu ;; \
        *) echo "images are for amd64 and arm64, and not for $TARGETARCH" >&2; exit 1 ;; \
    esac; \
    echo "$cpu" > /cpu; \
    rustup target add "$cpu-unknown-linux-gnu"; \
    if [ "$(dpkg --print-architecture)" != "$TARGETARCH" ]; then \
        apt-get update; \
        apt-get install --yes --no-install-recommends "$gcc" "libc6-dev-$TARGETARCH-cross"; \
    fi
COPY . .
# otlp: the program can send traces
ARG FEATURES=
RUN set -eu; \
    cpu=$(cat /cpu); \
    triple=$cpu-unknown-linux-gnu; \
    export "CARGO_TARGET_$(echo "$triple" | tr a-z- A-Z_)_LINKER=$cpu-linux-gnu-gcc"; \
    cargo build ${FEATURES:+--features "$FEATURES"} --locked --target "$triple" --release --bin kosmos-csi --no-default-features; \
    install "target/$triple/release/kosmos-csi" /kosmos-csi

# What follows runs on the processor that the image is for, or on one that is emulated: it copies files.
FROM docker.io/library/debian:bookworm-slim AS root
COPY deploy/image/root.sh /root.sh
COPY --from=program /kosmos-csi /kosmos-csi

FROM root AS small-root
RUN /root.sh small /kosmos-csi /image

FROM root AS node-root
# netbase has a file that mount.nfs reads
RUN apt-get update && apt-get install --yes --no-install-recommends util-linux e2fsprogs xfsprogs nfs-common netbase
RUN /root.sh node /kosmos-csi /image

FROM root AS mover-root
RUN apt-get update && apt-get install --yes --no-install-recommends rsync
RUN /root.sh mover /kosmos-csi /image

FROM scratch AS node
COPY --from=node-root /image /
ENV PATH=/usr/sbin:/usr/bin
ENTRYPOINT ["/kosmos-csi"]

FROM scratch AS mover
COPY --from=mover-root /image /
ENV PATH=/usr/sbin:/usr/bin
ENTRYPOINT ["/kosmos-csi"]

FROM scratch AS small
COPY --from=small-root /image /
ENV PATH=/usr/sbin:/usr/bin
USER 65532:65532
ENTRYPOINT ["/kosmos-csi"]
