// Classifies one image of a digit: 64 numbers from the standard input, dark is large.
package main

import (
	"fmt"
	"os"

	"example.org/classify/network"
)

func classify() (best int, err error) {
	var image [64]float32
	for i := range image {
		if _, err := fmt.Scan(&image[i]); err != nil {
			return 0, fmt.Errorf("64 numbers are needed: %w", err)
		}
	}
	session, err := network.New(0)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	probability, err := session.Run(&image)
	for digit := range probability {
		if probability[digit] > probability[best] {
			best = digit
		}
	}
	return best, err
}

func main() {
	digit, err := classify()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(digit)
}
