// Reads what a program answers at /metrics as Prometheus does: `scrape CONTENT-TYPE`, with the answer on standard input.
// Prints the names of all samples, or says what Prometheus would refuse.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: scrape CONTENT-TYPE <answer")
		os.Exit(64)
	}
	answer, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = read(answer, os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(answer []byte, contentType string) error {
	parser, err := textparse.New(answer, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry == textparse.EntrySeries {
			var series labels.Labels
			parser.Labels(&series)
			fmt.Println(series.Get(labels.MetricName))
		}
	}
}
