"""Steps between a template and its page."""

from api_service.web.rendering import label_cells

TABLE = """<p>Before</p><table>
  <caption>All</caption>
  <thead><tr><th scope="col" class="number">Place</th><th scope="col">Job</th>
  <th scope="col"><span>Act</span></th></tr></thead>
  <tbody><tr id="a"><td class="number">1</td><th scope="row">x</th><td>go</td></tr>
  <tr><td>2</td><th scope="row">y</th><td></td></tr></tbody>
</table><p>After</p>"""


def test_cells_carry_their_headings() -> None:
    labelled = label_cells(TABLE + TABLE)
    assert labelled.count('data-label="Place"') == 4
    assert '<td data-label="Place" class="number">1</td><th data-label="Job" scope="row">x</th>' in labelled
    assert '<td data-label="">go</td>' in labelled  # its heading is for screen readers
    assert labelled.replace(' data-label="Place"', "").replace(' data-label="Job"', "").replace(
        ' data-label=""', ""
    ) == (TABLE + TABLE)


def test_a_label_is_the_text_of_its_heading_alone() -> None:
    heading = '<abbr title="Thursday">Thu &amp; "Fri"</abbr>'
    labelled = label_cells(TABLE.replace("Place", heading))
    assert '<td data-label="Thu &amp; &quot;Fri&quot;" class="number">1</td>' in labelled


def test_the_rest_is_left_alone() -> None:
    for text in ("<p>No table</p>", "<table>", "<table><tbody><tr><td>no headings</td></tr></tbody></table>"):
        assert label_cells(text) == text
