package api

import _ "embed"

// OpenAPI describes the API: /api/v1/openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
