package api

import "time"

// A Session is the answer of /api/v1/session: who the caller is, and what it may do.
type Session struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`              // "Session"
	Name       string     `json:"name"`              // name of the caller; "": the request has no valid credential
	Roles      []Grant    `json:"roles"`             // each role includes the lesser ones
	SignedIn   bool       `json:"signed_in"`         // the caller has signed in, and can sign out
	CSRF       string     `json:"csrf,omitempty"`    // for a signed-in caller: value of the header Chancery-CSRF, which requests that change something must have
	Expires    *time.Time `json:"expires,omitempty"` // for a signed-in caller: when the session ends, unless this request is repeated before
	Failed     string     `json:"failed,omitempty"`  // why the last sign-in by the issuer failed; only in the first answer after it
	SignIn     []string   `json:"sign_in"`           // the ways to sign in: "token", "oidc"
}

// A Grant is a role of a caller.
type Grant struct {
	Role   string   `json:"role"`             // "view", "operate" or "commit"
	Groups []string `json:"groups,omitempty"` // patterns of the groups; none: all groups
}

// CSRFHeader is the header of requests with a cookie that change something.
const CSRFHeader = "Chancery-CSRF"

// KindSession is the kind of a [Session].
const KindSession = "Session"
