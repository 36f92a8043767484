# The sidecar's image: one static binary, CA certificates, nothing else; no shell, no root. See docs/how-to/image.md.
# Works with BuildKit and with the classic builder. All files have the time SOURCE_DATE_EPOCH, so equal sources give equal layers.
ARG GO_IMAGE=golang:1.26
ARG BASE=scratch

# What the image says about itself. It comes first so that it can be built alone (deploy/image/build does, for other architectures).
FROM ${BASE} AS plain
ARG VERSION=dev
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="retryproxy" \
      org.opencontainers.image.description="A reverse proxy that retries what is safe and worth retrying" \
      org.opencontainers.image.source="https://github.com/retryproxy/retryproxy" \
      org.opencontainers.image.documentation="https://github.com/retryproxy/retryproxy/blob/main/docs/how-to/image.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
USER 65532:65532
EXPOSE 8080 9797
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["/retryproxy", "health"]
ENTRYPOINT ["/retryproxy"]

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=dev
ARG REVISION=unknown
ARG SOURCE_DATE_EPOCH=0
ARG TAGS=
RUN sh deploy/image/compile "${TARGETARCH}" /out/retryproxy && \
    sh deploy/image/root /out/root /out/retryproxy /etc/ssl/certs/ca-certificates.crt && \
    go clean -cache

FROM plain
COPY --from=build /out/root/ /
