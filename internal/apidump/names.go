package main

import (
	"fmt"
	"go/types"
	"slices"
)

// exported returns the exported names of a package, sorted, with the fields and
// methods of each type below it.
func exported(pkg *types.Package) []string {
	var out []string
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		switch o := scope.Lookup(name).(type) {
		case *types.Const:
			if o.Exported() {
				out = append(out, fmt.Sprintf("const %s %s = %s\n", name, typeText(pkg, o.Type()), o.Val().ExactString()))
			}
		case *types.Var:
			if o.Exported() {
				out = append(out, fmt.Sprintf("var %s %s\n", name, typeText(pkg, o.Type())))
			}
		case *types.Func:
			if o.Exported() {
				out = append(out, "func "+name+typeText(pkg, o.Type())[len("func"):]+"\n")
			}
		case *types.TypeName:
			if o.Exported() {
				out = append(out, typeRows(pkg, o)...)
			}
		}
	}
	return out
}

// typeRows returns the rows of a type: what it is, its exported fields, and the
// methods of a pointer to it.
func typeRows(pkg *types.Package, o *types.TypeName) []string {
	if o.IsAlias() {
		return []string{fmt.Sprintf("type %s = %s\n", o.Name(), typeText(pkg, types.Unalias(o.Type())))}
	}
	head := "type " + o.Name()
	if named, ok := o.Type().(*types.Named); ok && named.TypeParams().Len() > 0 {
		head = "type " + typeText(pkg, named)
	}
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		return slices.Concat([]string{head + " struct\n"}, fields(pkg, under), methods(pkg, types.NewPointer(o.Type())))
	case *types.Interface:
		if open := unexported(under); open > 0 {
			head = fmt.Sprintf("%s interface with %d unexported methods\n", head, open)
		} else {
			head += " interface\n"
		}
		return append([]string{head}, methods(pkg, o.Type())...)
	default:
		return append([]string{head + " " + typeText(pkg, under) + "\n"}, methods(pkg, types.NewPointer(o.Type()))...)
	}
}

// unexported returns the number of an interface's methods that only its own
// package can have.
func unexported(i *types.Interface) (n int) {
	for m := range i.Methods() {
		if !m.Exported() {
			n++
		}
	}
	return n
}

// fields returns the exported fields of a struct, in their order, with their tags.
func fields(pkg *types.Package, s *types.Struct) (out []string) {
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			continue
		}
		row := "\t" + f.Name() + " " + typeText(pkg, f.Type())
		if f.Embedded() {
			row = "\tembeds " + typeText(pkg, f.Type())
		}
		if tag := s.Tag(i); tag != "" {
			row += " `" + tag + "`"
		}
		out = append(out, row+"\n")
	}
	return out
}

// methods returns the exported methods of a type or of a pointer to it, sorted, with
// those of embedded fields.
func methods(pkg *types.Package, t types.Type) (out []string) {
	value := t
	if p, ok := t.(*types.Pointer); ok {
		value = p.Elem()
	}
	ofValue := types.NewMethodSet(value)
	for m := range types.NewMethodSet(t).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := t
		if ofValue.Lookup(pkg, m.Obj().Name()) != nil {
			receiver = value
		}
		out = append(out, fmt.Sprintf("\tfunc (%s) %s%s\n", typeText(pkg, receiver), m.Obj().Name(), typeText(pkg, m.Type())[len("func"):]))
	}
	slices.Sort(out)
	return out
}

// typeText returns a type as pkg writes it.
func typeText(pkg *types.Package, t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	})
}
