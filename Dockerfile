# docker build -t chancery . — one static binary and nothing else. The image of a
# release has the program that was released, and says of itself what the last stage
# here says but for HEALTHCHECK: tools/release-image reads it, without Docker.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/chancery-xds/chancery/internal/cli.release=$VERSION -X github.com/chancery-xds/chancery/internal/cli.commit=$COMMIT" -o /chancery ./cmd/chancery

FROM scratch
COPY --from=build /chancery /chancery
# Nobody in particular; the directory of configuration must be readable.
USER 65532:65532
EXPOSE 18000 9090
# As variables, which chancery health reads too, and which stay with other arguments.
ENV CHANCERY_LISTEN=0.0.0.0:18000 CHANCERY_METRICS_LISTEN=0.0.0.0:9090
HEALTHCHECK --start-period=30s CMD ["/chancery", "health"]
ENTRYPOINT ["/chancery"]
CMD ["serve", "/config"]
