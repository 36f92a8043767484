# The sidecar's image: one static binary, no shell, no root.
ARG GO_VERSION=1.26
FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /retryproxy ./cmd/retryproxy

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /retryproxy /retryproxy
USER 65532:65532
EXPOSE 8080 9797
HEALTHCHECK --interval=5s --timeout=2s CMD ["/retryproxy", "health"]
ENTRYPOINT ["/retryproxy"]
