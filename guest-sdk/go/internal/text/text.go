// Package text is JSON as it crosses the border.
package text

import (
	"encoding/json"
	"io"
	"strings"
)

// Of writes value as JSON, every character as it is.
func Of(value any) (string, error) {
	var into strings.Builder
	encoder := json.NewEncoder(&into)
	// The default is for JSON that is pasted into a web page.
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(into.String(), "\n"), err
}

// Into reads JSON into value, and asks value whether it is content, if it can be asked. A number without a type of its own
// keeps its digits, as a [json.Number].
func Into(text string, value any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(value)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return Check(value)
}

// Check asks value whether it is content.
func Check(value any) error {
	if checked, can := value.(interface{ Check() error }); can {
		return checked.Check()
	}
	return nil
}
