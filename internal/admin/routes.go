package admin

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/guard"
)

// A route is one thing that can be asked for.
type route struct {
	method, path string
	about        string // for who reads the list of routes
	f            func(w http.ResponseWriter, r *http.Request) error
}

// routes are all there are.
func (s *Server) routes() []route {
	return []route{
		{"GET", "/api/v1/status", "the server, what it serves, its clients by state, and what is wrong", s.status},
		{"GET", "/version", "the version of the program", s.version},
	}
}

// Handler returns what answers on a listener with the address.
func (s *Server) Handler(at net.Addr) http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{} // by path
	all := s.routes()
	for _, rt := range all {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, s.guarded(rt))
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			refuse(w, &problem{http.StatusMethodNotAllowed, "", fmt.Sprintf("this path takes %s", strings.Join(allowed, " and ")), ""})
		})
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		headers(w, "text/plain; charset=utf-8")
		fmt.Fprintf(w, "The admin API of Chancery %s. Its commands use it: chancery status.\n\n", s.About.Version)
		for _, rt := range all {
			fmt.Fprintf(w, "%-5s %-48s %s\n", rt.method, rt.path, rt.about)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, missing("", "there is no such path", "/ lists the paths"))
	})
	return s.gate(at, mux)
}

// guarded has a panic end one request only.
func (s *Server) guarded(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error
		if p := guard.Do(func() { err = rt.f(w, r) }); p != nil {
			p.Log(s.log(), "admin API "+rt.path)
			panic(http.ErrAbortHandler) // something may be written already
		}
		if err != nil {
			refuse(w, err)
		}
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	v := s.Version
	v.APIVersion, v.Kind = adminapi.Version, adminapi.KindVersion
	answer(w, http.StatusOK, v)
	return nil
}
