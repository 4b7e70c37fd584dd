package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// CommandClients asks POST /api/v1/clients/{node}/{command}, or the same for a group if node is "". The
// command is "resync" or "disconnect". With all set, the server passes it on to the servers of its store.
func (c *Client) CommandClients(ctx context.Context, command, node, group string, in api.ClientRequest, all bool) (*api.ClientCommand, error) {
	path := "/clients/" + api.Segment(node)
	if node == "" {
		path = "/groups/" + api.Segment(group)
	}
	q := url.Values{}
	setBool(q, paramReplicas, all)
	return ask[api.ClientCommand](ctx, c, http.MethodPost, root+path+"/"+command, q, in)
}
