package report

import (
	"io"
	"net/url"
	"path/filepath"

	"github.com/chancery-xds/chancery/findings"
)

// A sarif is a log in the Static Analysis Results Interchange Format 2.1.0, with the parts that
// Chancery writes. https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type sarif struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver sarifDriver `json:"driver"`
	} `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID      string      `json:"id"`
	Short   sarifText   `json:"shortDescription"`
	Full    sarifText   `json:"fullDescription"`
	Help    sarifText   `json:"help"`
	Default sarifConfig `json:"defaultConfiguration"`
}

type sarifConfig struct {
	Level string `json:"level"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	Rule      string          `json:"ruleId"`
	Index     int             `json:"ruleIndex"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations"`
}

type sarifLocation struct {
	Physical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	} `json:"physicalLocation"`
	Logical []sarifLogical `json:"logicalLocations,omitempty"`
}

type sarifRegion struct {
	Line   int `json:"startLine"`
	Column int `json:"startColumn,omitempty"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
}

// SARIF writes a report for code scanning in GitHub, GitLab and editors.
func SARIF(w io.Writer, r Report) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "chancery", Version: r.Program, Rules: []sarifRule{}}
	rules := map[findings.Code]int{}
	for _, p := range r.Findings {
		id := p.CodeOrOther()
		index, known := rules[id]
		if !known {
			index = len(rules)
			rules[id] = index
			k, _ := findings.Explain(string(id))
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules,
				sarifRule{string(id), sarifText{k.Title}, sarifText{k.Why}, sarifText{k.Remedy}, sarifConfig{k.Severity()}})
		}
		run.Results = append(run.Results, sarifResult{string(id), index, severity(p), sarifText{message(p)}, []sarifLocation{located(p)}})
	}
	return encode(w, sarif{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

func located(p findings.Problem) (l sarifLocation) {
	at := url.URL{Path: filepath.ToSlash(p.File)}
	if filepath.IsAbs(p.File) {
		at.Scheme = "file"
	}
	l.Physical.Artifact.URI = at.String()
	if p.Pos.Line > 0 {
		l.Physical.Region = &sarifRegion{p.Pos.Line, p.Pos.Column}
	}
	if p.Path != "" {
		l.Logical = []sarifLogical{{p.Path}}
	}
	return l
}
