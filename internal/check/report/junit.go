package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"
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

// JUnit writes a report for build systems that show tests. Each finding is a test. An error fails its
// test; a warning fails it if warnings fail the check. Without findings, the whole check is one test.
// Unprintable characters are escaped: XML cannot contain some of them, and others could hide part of a
// message.
func JUnit(w io.Writer, r Report) error {
	errors, _ := r.count()
	suite := junitSuite{Name: "chancery check"}
	for _, p := range r.Findings {
		name, file := string(p.CodeOrOther()), text.Line(p.File)
		switch {
		case p.Omitted > 0:
			name = text.Line(p.Message)
		case p.Pos.Line > 0:
			name += fmt.Sprintf(" at %d:%d", p.Pos.Line, p.Pos.Column)
		}
		c := junitCase{Name: name, Class: file, File: file, Line: p.Pos.Line}
		if !p.Warning || r.Bad && errors == 0 {
			c.Failure = &junitFailure{string(p.CodeOrOther()), text.Line(message(p)), clean(p.Text())}
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

// clean removes white space from the end of a text, because programs that read the report would show
// it.
func clean(s string) string { return strings.TrimRight(s, " \t\n") }
