package access

import "github.com/chancery-xds/chancery/findings"

// Parse reads an access.yaml; file is what the problems call it. If there is an error among them
// the policy is nil, and the one in force had better stay.
func Parse(file string, data []byte) (*Policy, []findings.Problem) { return nil, nil }
