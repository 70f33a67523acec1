package config

import "html/template"

// parseTemplate checks the syntax of a page's template.
func parseTemplate(data []byte) error {
	_, err := template.New("page").Parse(string(data))
	return err
}
