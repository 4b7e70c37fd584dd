# docker build -t chancery . — one static binary and nothing else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.release=$VERSION" -o /chancery ./cmd/chancery

FROM scratch
COPY --from=build /chancery /chancery
# Nobody in particular; the directory of configuration must be readable.
USER 65532:65532
EXPOSE 18000 9090
ENTRYPOINT ["/chancery"]
CMD ["serve", "/config", "--listen", "0.0.0.0:18000", "--metrics-listen", "0.0.0.0:9090"]
