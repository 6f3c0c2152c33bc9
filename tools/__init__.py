"""What maintainers run: releases and the generated reference pages. Not part of the distribution."""
