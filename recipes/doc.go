// Package recipes has programs that join Holdfast to other tools, one in each folder
// below. docs/recipes.md shows them; copy what you need. The tests run each with the
// real library. The module has no tags.
package recipes
