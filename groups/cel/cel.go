// Package cel compiles rules of groups in CEL, the Common Expression Language (https://cel.dev). Pass
// [Compile] in groups.Options.CEL. It is a separate package, so that programs without such rules do not
// link CEL.
//
// An expression has one variable, node. Its fields are id, cluster, user_agent_name,
// user_agent_version, locality (region, zone, sub_zone) and metadata, a map with the values that the
// client sends:
//
//	node.cluster == "edge" && node.metadata.env == "prod"
//
// Only CEL's own functions and macros are available.
package cel

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/chancery-xds/chancery/groups"
)

const (
	maxExpression = 4096   // bytes
	maxNodes      = 1000   // in the syntax tree
	maxCost       = 10_000 // of one evaluation, in CEL's unit: about one field, one comparison, or ten bytes of text
)

// Compile compiles an expression of type bool. An expression that certainly has another type is an
// error, and so is an unknown field of node. If the type is known only at evaluation, and is not bool,
// the evaluation fails. An evaluation above the cost limit also fails.
func Compile(expression string) (groups.Predicate, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("an expression of %d bytes: at most %d are allowed", len(expression), maxExpression)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, readable(issues)
	}
	if t := ast.OutputType(); t.Kind() != types.BoolKind && t.Kind() != types.DynKind {
		return nil, fmt.Errorf("an expression of type bool is needed, not %s", t)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, err
	}
	return func(n *groups.Node) (bool, error) {
		out, _, err := program.Eval((*variables)(n))
		if err != nil {
			return false, err
		}
		b, ok := out.(types.Bool)
		if !ok {
			return false, fmt.Errorf("the result is of type %s, not bool", out.Type().TypeName())
		}
		return bool(b), nil
	}, nil
}

// environment is shared by all expressions.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := provider{Registry: registry}
	return cel.NewEnv(
		cel.CustomTypeProvider(p),
		cel.CustomTypeAdapter(p),
		cel.Variable("node", nodeType),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(50),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxNodes),
		cel.CrossTypeNumericComparisons(true), // numbers in metadata are doubles, but people write 5
	)
})

// readable returns the first error in one line.
func readable(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return errors.New("the expression cannot be read")
	}
	first := all[0]
	text := strings.Join(strings.Fields(first.Message), " ")
	if strings.HasPrefix(text, "undefined field") {
		text += ": node has id, cluster, locality, metadata, user_agent_name and user_agent_version, and locality region, zone and sub_zone"
	}
	if strings.HasSuffix(text, "token recognition error at: '= '") || strings.HasSuffix(text, "token recognition error at: '='") {
		text += " (equality is written ==)"
	}
	if line := first.Location.Line(); line > 1 {
		return fmt.Errorf("in line %d of the expression, character %d: %s", line, first.Location.Column()+1, text)
	}
	return fmt.Errorf("at character %d of the expression: %s", first.Location.Column()+1, text)
}
