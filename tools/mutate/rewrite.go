package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// mutant is one small change of the code.
type mutant struct {
	id    int
	place string // file:line:column
	what  string
}

// rewriter inserts all mutants of a package into its files. They are switched on by number
// when the tests run (helper.go.txt), so the package is compiled once for all of them.
type rewriter struct {
	pkg     *packages.Package
	mutants []mutant
	edits   []edit // of the present file
}

// edit replaces the bytes from at to at+cut by text. Of edits at one place those that close an
// expression come first, the innermost first of all.
type edit struct {
	at, cut int
	text    string
	order   int
}

func (r *rewriter) file(f *ast.File, src []byte) []byte {
	r.edits = nil
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			r.statements(n.List)
		case *ast.CaseClause:
			r.statements(n.Body)
		case *ast.CommClause:
			r.statements(n.Body)
		case *ast.IfStmt:
			r.condition(n.Cond)
		case *ast.ForStmt:
			r.condition(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						r.condition(e)
					}
				}
			}
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				if id, ok := e.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
					r.wrap(e, "returns the opposite of "+id.Name, "mutantNot(%d, ", ")")
				}
			}
		case *ast.BinaryExpr:
			if r.constant(n) {
				return false
			}
			r.binary(n)
		case *ast.CallExpr:
			r.extreme(n)
		}
		return true
	})
	return apply(src, r.edits)
}

func apply(src []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	var out []byte
	from := 0
	for _, e := range edits {
		out = append(out, src[from:e.at]...)
		out = append(out, e.text...)
		from = e.at + e.cut
	}
	return append(out, src[from:]...)
}

// add numbers a mutant.
func (r *rewriter) add(pos token.Pos, what string) int {
	id := len(r.mutants) + 1
	p := r.pkg.Fset.Position(pos)
	name := p.Filename[strings.LastIndex(p.Filename, "/")+1:]
	r.mutants = append(r.mutants, mutant{id, fmt.Sprintf("%s:%d:%d", name, p.Line, p.Column), what})
	return id
}

func (r *rewriter) edit(pos token.Pos, cut int, text string, order int) {
	r.edits = append(r.edits, edit{r.pkg.Fset.Position(pos).Offset, cut, text, order})
}

// wrap makes a mutant of the node: before, in which %d is its number, then the node, then after.
func (r *rewriter) wrap(n ast.Node, what, before, after string) {
	id := r.add(n.Pos(), what)
	r.edit(n.Pos(), 0, fmt.Sprintf(before, id), id)
	r.edit(n.End(), 0, after, -id)
}

func (r *rewriter) constant(e ast.Expr) bool { return r.pkg.TypesInfo.Types[e].Value != nil }

// statements removes each statement that may be missing.
func (r *rewriter) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && types.ExprString(call.Fun) == "panic" {
				continue // without it a return may be missing
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || types.ExprString(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
				continue
			}
		case *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.IncDecStmt:
		default:
			continue
		}
		r.wrap(s, "without the statement", "if !mutant(%d) { ", " }")
	}
}

// condition negates a condition that binary does not change.
func (r *rewriter) condition(e ast.Expr) {
	if e == nil || r.constant(e) {
		return
	}
	if _, ok := ast.Unparen(e).(*ast.BinaryExpr); !ok {
		r.wrap(e, "negated", "mutantNot(%d, ", ")")
	}
}

// swapped names the function of helper.go.txt for an operator, and what it does when it is switched on.
var swapped = map[token.Token][2]string{
	token.LSS: {"Lt", "<="}, token.LEQ: {"Le", "<"}, token.GTR: {"Gt", ">="}, token.GEQ: {"Ge", ">"},
	token.ADD: {"Add", "-"}, token.SUB: {"Sub", "+"}, token.MUL: {"Mul", "/"}, token.QUO: {"Quo", "*"},
	token.LAND: {"And", "||"}, token.LOR: {"Or", "&&"},
}

func (r *rewriter) binary(n *ast.BinaryExpr) {
	compares := n.Op.Precedence() == token.EQL.Precedence()
	if compares {
		r.wrap(n, n.Op.String()+" negated", "mutantNot(%d, ", ")")
	}
	to, ok := swapped[n.Op]
	basic, _ := r.pkg.TypesInfo.TypeOf(n).Underlying().(*types.Basic)
	if !ok || !compares && basic != nil && basic.Info()&(types.IsNumeric|types.IsBoolean) == 0 {
		return
	}
	between, after := ", ", ")"
	if n.Op == token.LAND || n.Op == token.LOR {
		between, after = ", func() bool { return (", ") })"
	}
	r.wrap(n, n.Op.String()+" becomes "+to[1], "mutant"+to[0]+"(%d, ", after)
	r.edit(n.OpPos, len(n.Op.String()), between, 0)
}

// extreme swaps the built-in functions min and max.
func (r *rewriter) extreme(n *ast.CallExpr) {
	id, ok := n.Fun.(*ast.Ident)
	if !ok || id.Name != "min" && id.Name != "max" || r.constant(n) {
		return
	}
	if _, builtin := r.pkg.TypesInfo.Uses[id].(*types.Builtin); !builtin {
		return
	}
	number := r.add(n.Pos(), id.Name+" becomes the other")
	r.edit(id.Pos(), len("min("), fmt.Sprintf("mutant%s(%d, ", strings.ToUpper(id.Name[:1])+id.Name[1:], number), number)
}
