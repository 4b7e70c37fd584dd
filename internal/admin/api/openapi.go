package api

import _ "embed"

// OpenAPI describes the API: /api/v1/openapi.yaml. TestOpenAPI of internal/admin generates the file from
// this package and the routes.
//
//go:embed openapi.yaml
var OpenAPI []byte
