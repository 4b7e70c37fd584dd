package listen

import (
	"net/http"
	"net/url"
	"strings"
)

// CrossOrigin reports whether a web page of another origin than self sent the request. The argument self is
// a host with its port, as in the Host header; "" means that no page may send requests. (SAFE-16)
//
// A browser sends the Origin header with each request that is not GET or HEAD, and with each request of
// which a page of another origin could read the response. It sends Sec-Fetch-Site with the other requests of
// a page, such as images, if the server has a loopback address or TLS. Other clients send neither header.
func CrossOrigin(r *http.Request, self string) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, self) {
			return true
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}
