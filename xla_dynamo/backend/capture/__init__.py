"""AOTAutograd, which makes functional ATen graphs, and why Dynamo captured a function again."""
