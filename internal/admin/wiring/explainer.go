package wiring

import (
	"context"
	"errors"

	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/explain"
)

// An explainer lets the admin API ask an [explain.Explainer].
type explainer struct{ e *explain.Explainer }

func (x explainer) Explain(ctx context.Context, node, typ, name string) (api.Explanation, error) {
	a, err := x.e.Explain(ctx, node, typ, name)
	return a, notFound(err)
}

func (x explainer) ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error) {
	a, err := x.e.ClientResources(ctx, node, typ, name, limit)
	return a, notFound(err)
}

func (x explainer) Served(ctx context.Context, q admin.ResourceQuery) (api.ResourceList, error) {
	a, err := x.e.Served(ctx, explain.Query{Type: q.Type, Name: q.Name, Group: q.Group, Limit: q.Limit, Offset: q.Offset, Subscribers: q.Subscribers, Body: q.Name != "", Places: q.Places})
	return a, notFound(err)
}

func (x explainer) References(ctx context.Context, q admin.ReferenceQuery) (api.ReferenceGraph, error) {
	g, err := x.e.References(ctx, explain.GraphQuery(q))
	return g, notFound(err)
}

func (x explainer) Diff(ctx context.Context, q admin.DiffQuery) (api.Diff, error) {
	d, err := x.e.Diff(ctx, explain.DiffQuery(q))
	return d, notFound(err)
}

func (x explainer) Impact(ctx context.Context, changes api.ImpactRequest) (api.Impact, error) {
	a, err := x.e.Impact(ctx, changes)
	return a, notFound(err)
}

func (x explainer) Node(node string) (api.NodeInfo, error) {
	a, err := x.e.Node(node)
	return a, notFound(err)
}

func (x explainer) Preview(node []byte) (api.Preview, error) { return x.e.Preview(node) }

func (x explainer) Check(group string, text []byte) (api.Check, []api.ImpactChange) {
	return x.e.Check(group, text)
}

func (x explainer) Certificates(most int) []api.Certificate { return x.e.Certificates(most) }

func (x explainer) Unused(name string) string { return x.e.Unused(name) }

func (x explainer) Wait(ctx context.Context, clients []api.Client) { x.e.Wait(ctx, clients) }

func (x explainer) Blame(ctx context.Context, refusals []api.Refusal) []api.Refusal {
	return x.e.Blame(ctx, refusals)
}

// notFound converts the not-found error of the explainer into that of the admin API.
func notFound(err error) error {
	if e, ok := errors.AsType[*explain.NotFound](err); ok {
		return &admin.NotFound{Field: e.Field, Message: e.Message, Hint: e.Hint}
	}
	return err
}
