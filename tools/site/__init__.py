"""What the documentation site is made of beside its Markdown: notebooks, reference pages, the command line's help."""
