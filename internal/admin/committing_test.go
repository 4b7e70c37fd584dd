package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// A commit keeps the resources that it does not contain, unless prune is set. The audit log has each
// refused commit.
func TestCommitKeepsOtherResources(t *testing.T) {
	s := committing(t)
	var refused []string
	s.Revisions.Refused = func(what, author, message string, err error) {
		refused = append(refused, what+" by "+author+": "+message+": "+err.Error())
	}
	h := s.Handler(loopback)
	for _, q := range []question{
		{"POST /api/v1/revisions", commitOf("", "a", "b"), 200, `"set":2,"removed":0}`},
		{"POST /api/v1/revisions", commitOf("", "c"), 200, `"revision":"r2","base":"r1","set":1,"removed":0,"kept":2}`},
		{"POST /api/v1/revisions", `{"commit":{"message":"` + strings.Repeat("x", maxNote+1) + `"}}`, 400, "too long"},
		{"POST /api/v1/revisions", commitOf(`,"source":"`+strings.Repeat("x", maxNote+1)+`"`, "d"), 400, "too long"},
		{"POST /api/v1/revisions", commitOf("", "bad"), 400, "it is bad"},
	} {
		withToken(t, h, q)
	}
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "commit by token (says ana): why: ") {
		t.Error(refused)
	}
}

// A commit with if_head is refused if another commit comes first, even during its review.
func TestCommitIfHead(t *testing.T) {
	s := committing(t)
	h := s.Handler(loopback)
	withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "a"), 200, `"revision":"r1"`})
	s.Revisions.Review = func(*revisions.Snapshot, bool) (_, _ []string) {
		s.Revisions.Review = func(*revisions.Snapshot, bool) (_, _ []string) { return nil, nil }
		withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "b"), 200, `"revision":"r2"`})
		return nil, nil
	}
	withToken(t, h, question{"POST /api/v1/revisions", commitOf(`,"if_head":"r1"`, "c"), 409, "r2"})
}

// Only a few commits run at the same time, because each is in memory. A commit that waits for too
// long gets an error.
func TestFewCommitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := committing(t)
		at := &slowFleet{}
		s.Revisions.Review = func(*revisions.Snapshot, bool) (_, _ []string) { at.slowly(); return nil, nil }
		h := s.Handler(loopback)
		codes := make(chan int)
		const all = 20 // more commits than can finish within the waiting time
		for range all {
			go func() {
				codes <- ask(h, "POST /api/v1/revisions", commitOf(`,"dry_run":true`, "a"), "Authorization", "Bearer secret").Code
			}()
		}
		by := map[int]int{}
		for range all {
			by[<-codes]++
		}
		if at.most.Load() != maxCommits || by[200] < maxCommits || by[503] == 0 || by[200]+by[503] != all {
			t.Errorf("%d at once, %v", at.most.Load(), by)
		}
	})
}

// A revision that this server would not serve is not restored.
func TestRestoreIsReviewed(t *testing.T) {
	s := committing(t)
	review := s.Revisions.Review
	h := s.Handler(loopback)
	s.Revisions.Review = func(*revisions.Snapshot, bool) (_, _ []string) { return nil, nil }
	withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "a", "bad"), 200, `"revision":"r1"`})
	s.Revisions.Review = review
	withToken(t, h, question{"POST /api/v1/revisions", commitOf(`,"prune":true`, "a"), 200, `"revision":"r2","base":"r1","set":0,"removed":1}`})
	withToken(t, h, question{"POST /api/v1/revisions/r1/restore", `{"message":"back"}`, 400, "it is bad"})
}

// SAFE-6: the items of a revision contain no secrets, and are marked as redacted.
func TestItemsHaveNoSecrets(t *testing.T) {
	s := committing(t)
	s.Revisions.Show = func(url string, body []byte) ([]byte, bool) {
		if url == xds.Secret.URL {
			return nil, false
		}
		return body, true
	}
	h := s.Handler(loopback)
	secret := base64.StdEncoding.EncodeToString([]byte("\n\x01s"))
	withToken(t, h, question{"POST /api/v1/revisions", commitOf("", "a") + `{"item":{"group":"default","type":"` + xds.Secret.URL + `","name":"s","body":"` + secret + `","secret":true,"version":"v7"}}`, 200, `"set":2`})
	w := ask(h, "GET /api/v1/revisions/head/items", "", "Authorization", "Bearer secret")
	if got := w.Body.String(); strings.Contains(got, secret) || strings.Count(got, `"redacted":true`) != 1 || !strings.Contains(got, `"version":"v7"`) {
		t.Error(got)
	}
}

// Each error of the store has an HTTP status that tells clients whether to retry.
func TestErrorsOfRepository(t *testing.T) {
	for err, code := range map[error]int{
		&revisions.ConflictError{Base: 1, Head: 2}: http.StatusConflict, revisions.ErrNotFound: http.StatusNotFound, revisions.ErrUnavailable: http.StatusServiceUnavailable, revisions.ErrDamaged: http.StatusInternalServerError,
		errors.Join(revisions.ErrUnknown, revisions.ErrConflict): http.StatusInternalServerError, context.Canceled: errEnding.code, errStalled: errStalled.code,
	} {
		if p, is := errors.AsType[*problem](ofRepository(fmt.Errorf("x: %w", err))); !is || p.code != code {
			t.Errorf("%v: %+v, want %d", err, p, code)
		}
	}
}

// The author is the identity in the client certificate, if there is one.
func TestIdentityOf(t *testing.T) {
	spiffe, err := url.Parse("spiffe://example.com/ci")
	if err != nil {
		t.Fatal(err)
	}
	for want, leaf := range map[string]*x509.Certificate{
		"spiffe://example.com/ci": {URIs: []*url.URL{spiffe}, DNSNames: []string{"ci"}}, "certificate of ci": {DNSNames: []string{"ci"}}, "certificate of ": {}, "token": nil,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		if r.TLS = (&tls.ConnectionState{}); leaf != nil {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
		}
		if got := identityOf(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
