package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr,omitempty"`
	Failure *junitFailure `xml:"failure"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes for build systems that show tests: each finding is a test. An error fails
// it, and so does a warning if the check fails because of warnings. If there is none, the
// check as a whole is a test.
func JUnit(w io.Writer, r Report) error {
	errors, _ := r.count()
	suite := junitSuite{Name: "chancery check"}
	for _, p := range r.Findings {
		name := string(p.Coded())
		switch {
		case p.Others > 0:
			name = p.Message
		case p.Pos.Line > 0:
			name += fmt.Sprintf(" at %d:%d", p.Pos.Line, p.Pos.Column)
		}
		c := junitCase{Name: name, Class: p.File, File: p.File, Line: p.Pos.Line}
		if !p.Warning || r.Bad && errors == 0 {
			c.Failure = &junitFailure{string(p.Coded()), message(p), clean(p.Text())}
			suite.Failures++
		} else {
			c.Out = clean(p.Text())
		}
		suite.Cases = append(suite.Cases, c)
	}
	if len(suite.Cases) == 0 {
		suite.Cases = []junitCase{{Name: "check", Class: "chancery", Out: r.summary()}}
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// clean ends a text in no white space, which a reader would show.
func clean(s string) string { return strings.TrimRight(s, " \t\n") }
