"""Images, and pairs of patches made from them."""
