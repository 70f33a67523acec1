package page

// Functions with which the browser tests compare server and browser.

var WordsSource = source("words.js")

// Languages returns the codes of the built-in languages.
func Languages() []string {
	all, err := builtin()
	if err != nil {
		panic(err)
	}
	return sortedKeys(all)
}

// BrowserTexts returns the JSON that a page carries for its script.
func BrowserTexts(code string) string {
	all, _ := builtin()
	return string(all[code].browser("10 minutes"))
}

// Say returns the server's texts for a wait and for a number of people ahead.
func Say(code string, low, high, ahead int64) [2]string {
	all, _ := builtin()
	return [2]string{all[code].wait(low, high), all[code].count("ahead", 2*ahead)}
}
